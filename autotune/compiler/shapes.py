"""The shapes that a model with open dimensions has run in, and what each of them takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from autotune.compiler.specialisation import Specialisation
from autotune.errors import InputError
from autotune.graph.host import HostValue
from autotune.runtime.shape_use import ShapeUse
from autotune.tensor.declared import ModelInput, extents_of
from autotune.tensor.dtype import DType


def shape_uses(specials: Iterable[Specialisation], held: set[int]) -> list[ShapeUse]:
    """One entry for each program.

    Args:
        held: where the weights are that programs before them read; theirs are added.
    """
    found: list[ShapeUse] = []
    for special in specials:
        if special.program is None:
            continue
        program, weights = special.program.program, special.weights
        own = sum(nbytes for place, nbytes in weights.items() if place not in held)
        held.update(weights)
        shapes = {spec.name: spec.shape for spec in program.inputs}
        life = special.life
        total = sum(weights.values())
        found.append(ShapeUse(shapes, life.runs, life.seconds, total, own, program.arena_bytes))
    return found


def extents_in(inputs: Sequence[ModelInput], values: Mapping[str, HostValue]) -> dict[str, int]:
    """What the open dimensions are in a run; of feeds that fit."""
    return extents_of(inputs, {name: value.shape for name, value in values.items() if isinstance(value, np.ndarray)})


def zeros(inputs: Sequence[ModelInput], extents: Mapping[str, int]) -> dict[str, HostValue]:
    """Feeds of a shape.

    Raises:
        InputError: an open dimension is not among the extents, or has no symbol.
    """
    found: dict[str, HostValue] = {}
    for declared in inputs:
        if not declared.is_tensor or declared.dims is None:
            raise InputError(f"input '{declared.name}' has no shape that extents would tell: {declared.form}")
        shape = tuple(dim if isinstance(dim, int) else extents.get(str(dim), -1) for dim in declared.dims)
        if -1 in shape:
            raise InputError(f"an extent is missing for input '{declared.name}': {declared.form}")
        found[declared.name] = np.zeros(shape, DType(declared.dtype).numpy)
    return found
