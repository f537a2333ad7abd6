"""Random recurrent layers: few steps, awkward widths, every operand that a layer may have."""

from __future__ import annotations

import random

from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
FUNCTIONS = {"rnn": ("tanh",), "gru": ("sigmoid", "tanh"), "lstm": ("sigmoid", "tanh", "tanh")}
EXTRAS = {
    "rnn": ("initial_h", "lengths"),
    "gru": ("initial_h", "lengths", "recurrent_bias"),
    "lstm": ("initial_h", "initial_c", "peephole", "lengths"),
}


def layer(
    op: str, steps: int, batch: int, hidden: int, direction: str = "forward", extras: tuple[str, ...] = (),
    dtype: str = "f32", constant: bool = True, results: tuple[int, ...] = (0,), **attrs: bool | float,
) -> Workload:  # fmt: skip
    """A layer as the graph makes it, with the usual functions."""
    d, g = 2 if direction == "bidirectional" else 1, GATES[op]
    shapes = {
        "initial_h": (d, batch, hidden), "initial_c": (d, batch, hidden), "peephole": (d, 3 * hidden),
        "lengths": (batch,), "recurrent_bias": (d, hidden),
    }  # fmt: skip
    inputs = [
        WorkloadInput(TensorType(dtype, (steps, batch, d * g * hidden))),
        WorkloadInput(TensorType(dtype, (d, g * hidden, hidden)), constant),
    ]
    for name in extras:
        inputs.append(WorkloadInput(TensorType("i32" if name == "lengths" else dtype, shapes[name])))
    count = d * len(FUNCTIONS[op])
    own = {"gru": {"linear_before_reset": False}, "lstm": {"input_forget": False}}.get(op, {})
    nodes = tuple(
        WorkloadNode.make(
            op, tuple(range(len(inputs))), extras=",".join(extras), direction=direction, clip=attrs.get("clip", 0.0),
            activations=",".join(FUNCTIONS[op] * d), alphas=(0.0,) * count, betas=(0.0,) * count, result=result,
            **{name: attrs.get(name, value) for name, value in own.items()},
        )
        for result in results
    )  # fmt: skip
    return Workload(tuple(inputs), nodes, tuple(len(inputs) + n for n in range(len(nodes))))


def random_layer(rng: random.Random) -> Workload:
    """A layer of any kind."""
    op = rng.choice(tuple(GATES))
    results = rng.choice(((0,), (0, 1), (1,), (1, 2, 0) if op == "lstm" else (1, 0)))
    attrs: dict[str, bool | float] = {"clip": rng.choice((0.0, 0.0, 0.5))}
    if op != "rnn":
        attrs["linear_before_reset" if op == "gru" else "input_forget"] = rng.random() < 0.5
    return layer(
        op, rng.choice((1, 2, 3, 5)), rng.choice((1, 1, 2, 3, 7)), rng.choice((1, 3, 8, 16, 17, 31, 32, 40)),
        rng.choice(("forward", "reverse", "bidirectional")), tuple(e for e in EXTRAS[op] if rng.random() < 0.3),
        rng.choice(("f32", "f32", "f32", "f64", "f16")), rng.random() < 0.8, results, **attrs,
    )  # fmt: skip
