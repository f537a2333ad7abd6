"""The inputs of a run: those that were given, and random values for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.api.node_arg import NodeArg
from autotune.errors import InputError
from autotune.runtime.executor import Array
from autotune.runtime.feeds import random_feeds
from autotune.tensor.declared import check_given


def complete_feeds(
    wanted: Sequence[NodeArg], given: Mapping[str, object], seed: int | None, deviation: float = 1.0
) -> dict[str, Array]:
    """All feeds by name.

    Args:
        wanted: the model's inputs.
        given: values of some of them.
        seed: to draw the others with; None when all must be given.
        deviation: of the floats that are drawn.

    Raises:
        InputError: a name is unknown, a value is missing, or one that is to be drawn has an open shape.
    """
    known = ", ".join(f"{arg.name}: {arg.type}{arg.shape}" for arg in wanted)
    unknown = [name for name in given if name not in {arg.name for arg in wanted}]
    if unknown:
        raise InputError(f"the model has no input {', '.join(unknown)}; it takes {known or 'none'}")
    missing = [arg for arg in wanted if arg.name not in given]
    if missing and seed is None:
        raise InputError(
            f"no value for input {', '.join(arg.name for arg in missing)}; give --input NAME=FILE.npy or"
            f" --random SEED; the model takes {known}"
        )
    drawn = random_feeds([arg.spec for arg in missing], seed, deviation) if seed is not None else {}
    return {**drawn, **as_arrays(given)}


def shapes_with(
    shapes: Mapping[str, Sequence[int]] | None, inputs: Mapping[str, object] | None
) -> dict[str, tuple[int, ...]]:
    """Dimensions by input: those of the arrays given, and those that are given as such."""
    check_given(shapes or {})
    of_arrays = {name: array.shape for name, array in as_arrays(inputs).items()}
    return {**of_arrays, **{name: tuple(dims) for name, dims in (shapes or {}).items()}}


def as_arrays(values: Mapping[str, object] | None) -> dict[str, Array]:
    if values is not None and not isinstance(values, Mapping):
        raise InputError(f"values of inputs are a mapping of names to arrays, not {values!r}")
    return {name: np.asarray(value) for name, value in (values or {}).items()}
