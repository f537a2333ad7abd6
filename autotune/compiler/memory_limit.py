"""Which kernels give up an algorithm with larger weights, so that a model fits into a limit of memory."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.codegen.kernel import KernelObject
from autotune.compiler.slots import KernelStep
from autotune.ops.workload import Workload
from autotune.tensor.dtype import DType


class TooLarge(Exception):
    """A program takes `nbytes` for weights and a run, more than it may."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        self.nbytes = nbytes


def to_give_up(built: Iterable[tuple[KernelStep, KernelObject]], excess: int) -> set[Workload]:
    """Workloads to compute by their definition, enough to save `excess` bytes or all that there are.

    Those that save the fewest multiplications per byte come first.
    """
    extra: dict[Workload, int] = {}
    for step, kernel in built:
        grown = _constant_bytes(kernel) - _weight_bytes(step.workload)
        if grown > 0 and not step.choice.is_strict(step.workload):
            extra[step.workload] = extra.get(step.workload, 0) + grown
    chosen: set[Workload] = set()
    for workload in sorted(extra, key=lambda w: (w.flops / extra[w], w.key)):
        if excess <= 0:
            break
        chosen.add(workload)
        excess -= extra[workload]
    return chosen


def _constant_bytes(kernel: KernelObject) -> int:
    return sum(operand.bytes for operand in kernel.operands if operand.constant)


def _weight_bytes(workload: Workload) -> int:
    total = 0
    for entry in workload.inputs:
        if entry.constant:
            count = 1
            for extent in entry.type.shape:
                count *= extent
            total += count * DType(entry.type.dtype).bytes
    return total
