"""Random models: `random_model(seed)`."""

from __future__ import annotations

import random

import numpy as np

from tests.property import (
    random_graph_branches,
    random_graph_loops,
    random_graph_open,
    random_graph_patterns,
    random_graph_steps,
    random_graph_values,
)
from tests.property.random_graph import STEPS, Array, Model
from tests.property.random_graph_forms import Unfit

FAMILIES = (
    random_graph_steps,
    random_graph_patterns,
    random_graph_values,
    random_graph_open,
    random_graph_branches,
    random_graph_loops,
)  # importing them fills STEPS
OPSETS = (6, 7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28)
DTYPES = (*(("float32", 1e4, 5),) * 8, ("float64", 1e4, 5), ("float16", 1e2, 3))
"""Names of dtypes, the size beyond which values are not followed: they would only test rounding, and the most steps."""
LARGEST = 1 << 14  # elements


def random_model(seed: int) -> Model:
    """Model number `seed`."""
    rng = random.Random(seed)
    name, large, steps = rng.choice(DTYPES)
    model = Model(rng, rng.choice(OPSETS), np.dtype(name))
    rank = rng.choice((2, 3, 4, 4))
    shape = [rng.choice((1, 1, 2)), *(rng.choice((1, 3, 4, 5, 7, 8, 12, 16, 17, 20)) for _ in range(rank - 1))]
    if rng.random() < 0.03:
        shape[rng.randrange(rank)] = 0
    model.input(model.array(shape))
    if rng.random() < 0.3:
        model.input(model.array(shape))
    model.open = rng.random() < 0.05
    weights = [weight for weight, _ in STEPS]
    for _ in range(rng.randint(1, steps)):
        before = (len(model.nodes), list(model.constants), dict(model.values), set(model.exact), list(model.inputs),
                  model.loose)  # fmt: skip
        try:
            rng.choices([function for _, function in STEPS], weights)[0](model)
            fits = all(
                _sound(model.values[name], large, empty=0 in shape)
                for node in model.nodes[before[0] :]
                for name in node.output
                if name in model.values
            )
        except Unfit:
            fits = False
        except (ValueError, IndexError, ZeroDivisionError):  # nothing to choose from
            if 0 not in shape:
                raise
            fits = False
        if not fits:
            del model.nodes[before[0] :]
            model.constants, model.values, model.exact, model.inputs, model.loose = before[1:]
    if not model.nodes:
        model.one("Relu", model.inputs[0], keeps=True)
    written = [name for node in model.nodes for name in node.output if name in model.values]  # no sequences
    model.shown = {name for name in written if rng.random() < 0.05}
    return model


def _sound(value: Array, large: float, *, empty: bool) -> bool:
    if value.size > LARGEST or (value.size == 0 and not empty):
        return False
    if value.dtype.kind != "f":
        return True
    return bool(np.isfinite(value).all() and np.abs(value).max(initial=0.0) < large)
