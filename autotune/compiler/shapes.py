"""The shapes that a model with open dimensions has run in, and what each of them takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.compiler.specialisation import Specialisation
from autotune.errors import InputError
from autotune.graph.frontend import ModelInput
from autotune.graph.host import HostValue
from autotune.tensor.dtype import DType


@dataclass(frozen=True, slots=True)
class ShapeUse:
    """A program that a session keeps.

    Attributes:
        inputs: shapes of what it reads, by name.
        runs: how many it has served.
        seconds: what it took to make.
        weight_bytes: of the packed weights that it reads.
        own_bytes: of those that no program before it in the list reads.
        arena_bytes: of the intermediate values of a run.
    """

    inputs: Mapping[str, tuple[int, ...]]
    runs: int
    seconds: float
    weight_bytes: int
    own_bytes: int
    arena_bytes: int

    def __str__(self) -> str:
        shapes = ", ".join(f"{name}{list(shape)}" for name, shape in self.inputs.items())
        mib = [n / 2**20 for n in (self.own_bytes, self.weight_bytes, self.arena_bytes)]
        return (
            f"{shapes}: {self.runs} runs, made in {self.seconds:.2f} s,"
            f" {mib[0]:.1f} of {mib[1]:.1f} MiB of weights its own, {mib[2]:.1f} MiB for a run"
        )


def shape_uses(specials: Iterable[Specialisation]) -> list[ShapeUse]:
    """One entry for each program."""
    held: set[int] = set()
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


def extents_of(inputs: Sequence[ModelInput], values: Mapping[str, HostValue]) -> dict[str, int]:
    """What the open dimensions are in a run; of feeds that fit."""
    found: dict[str, int] = {}
    for declared in inputs:
        value = values[declared.name]
        if isinstance(value, np.ndarray) and declared.dims is not None:
            found.update({dim: extent for dim, extent in zip(declared.dims, value.shape) if isinstance(dim, str)})
    return found


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
