"""What a register tile takes: the one place where templates learn how fast a core multiplies and loads.

A tile keeps sums in registers. A step adds one product to each of them: so many multiply-adds, each a chain of its own
from step to step, of so many vectors and numbers that are loaded for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.core import Pipe
from autotune.schedule.dot_products import DotProduct
from autotune.target import Target
from autotune.tensor.dtype import DType

HIDDEN = 0.2
"""Share of a load's time that multiply-adds do not hide (measured: products of matrices, Zen 4)."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How fast a target steps, with vectors of one dtype and width.

    Attributes:
        pipe: of its multiply-adds.
        loads: of such vectors, or of numbers for all of their lanes, per cycle.
    """

    pipe: Pipe
    loads: float

    @staticmethod
    def of(target: Target, dtype: DType = DType.f32, lanes: int | None = None) -> Steps:
        """For vectors of so many lanes, by default the widest."""
        bits = target.vector_bits if lanes is None else lanes * dtype.bytes * 8
        kind = "fma.f64" if dtype is DType.f64 else "fma.f32"
        pipe = target.core.pipe(kind, max(bits, 128))
        assert pipe is not None  # a target's core has it
        # Narrower vectors load as fast as wide ones at least, and two at a time on any CPU.
        wide = target.core.loads
        return Steps(pipe, min(wide * target.vector_bits / bits, max(wide, 2.0)))

    @staticmethod
    def folding(target: Target, dot: DotProduct) -> Steps:
        """For an instruction that folds neighbours, on the widest vectors."""
        pipe = target.core.pipe(dot.pipe, target.vector_bits)
        assert pipe is not None  # a target that has the instruction has its pipe
        return Steps(pipe, target.core.loads)

    def cycles(self, sums: float, loads: float) -> float:
        """Of one step: multiply-adds, or loads, or the wait for the step before, whichever takes longest."""
        return max(max(sums, self.pipe.in_flight) / self.pipe.per_cycle, loads / self.loads)

    def loading(self, sums: float, loads: float) -> float:
        """Share of the time of a step's multiply-adds in which its loads keep their units busy."""
        return loads / self.loads / self.cycles(sums, 0)


def registers(rows: int, vectors: int) -> int:
    """Vector registers of a tile: its sums, all of the smaller factor, and one of the other."""
    return rows * vectors + min(rows, vectors) + 1


def tiles(extent: int, size: int) -> list[tuple[int, int]]:
    """Sizes of the tiles along an axis, and how many have each: whole ones, and one of what is left."""
    return [(n, many) for n, many in ((size, extent // size), (extent % size, 1)) if n and many]


def unrolled_steps(held: int, target: Target) -> int:
    """How many steps a turn of a tile's loop has, untuned: two, which hide the loop's own instructions.

    One where a tile holds every register: LLVM lets a sum go on in the register of what it was multiplied by,
    and without a free one it writes sums to memory between two steps.
    """
    return 2 if held < target.num_vector_registers else 1
