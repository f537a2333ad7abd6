"""What each of the programs takes that a session keeps for the shapes of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShapeUse:
    """A program that a session keeps, or memory in which native code moves rows between programs.

    Attributes:
        inputs: shapes of what it reads, by name.
        runs: how many it has served.
        seconds: what it took to make; 0 of a compiled file's.
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
