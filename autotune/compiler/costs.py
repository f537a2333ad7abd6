"""What a kernel costs in some layouts: as measured, or a generous estimate where it was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autotune.compiler.choose import Choice, Chooser
from autotune.compiler.slots import Assignment, KernelStep, layout_workload
from autotune.compiler.wishes import bare, leads_layouts
from autotune.ops.workload import TensorType, Workload
from autotune.search_spaces import Interface
from autotune.search_spaces.space.limit import Speed
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

MIXED = 3.0
"""How often a tensor counts that is read in an order other than the one in which the result is written."""


class Costs:
    """Seconds per kernel.

    A record counts for every interface that differs from its own in halos only: a border of zeros costs little.
    """

    def __init__(self, chooser: Chooser) -> None:
        self.choose = chooser
        self._records: dict[Workload, dict[tuple[Layout, ...], Choice]] = {}
        self._known: dict[tuple[Workload, tuple[Layout, ...]], float] = {}

    def record(self, workload: Workload, layouts: Sequence[Layout]) -> Choice | None:
        """The fastest record of a kernel in these layouts, halos aside."""
        if workload not in self._records:
            found: dict[tuple[Layout, ...], Choice] = {}
            for interface, choice in self.choose.measured(workload).items():
                key = tuple(map(bare, interface.layouts))
                if key not in found or (choice.seconds or 0.0) < (found[key].seconds or 0.0):
                    found[key] = choice
            self._records[workload] = found
        return self._records[workload].get(tuple(map(bare, layouts)))

    def streaming(self, workload: Workload, layouts: Sequence[Layout]) -> float:
        """A kernel that no template leads, in these layouts."""
        key = (workload, tuple(map(bare, layouts)))
        if key not in self._known:
            choice = self.record(workload, layouts)
            seconds = None if choice is None else choice.seconds
            self._known[key] = estimate(workload, layouts, self.choose.target) if seconds is None else seconds
        return self._known[key]

    def transform(self, kind: TensorType, source: Layout, wanted: Layout) -> float:
        """Copying a tensor from one layout into another."""
        return self.streaming(layout_workload(kind), (source, wanted))

    def step(self, step: KernelStep) -> float:
        """A kernel of an assignment. One with an anchor but no record costs nothing: no layouts depend on it."""
        if step.choice.tuned and step.choice.seconds is not None:
            return step.choice.seconds
        return 0.0 if leads_layouts(step.workload) else self.streaming(step.workload, step.interface.layouts)

    def gains(self, new: Assignment, old: Assignment, share: float) -> bool:
        """Whether the kernels that only `new` has take less than a share of the time of those that only `old` has."""
        seconds: list[float] = []
        counts = [Counter((step.workload, step.interface) for step in a.steps) for a in (new, old)]
        for a, others in ((new, counts[1]), (old, counts[0])):
            left, found = Counter(others), 0.0
            for step in a.steps:
                key = (step.workload, step.interface)
                found += 0.0 if left[key] else self.step(step)
                left[key] -= 1 if left[key] else 0
            seconds.append(found)
        return seconds[0] < share * seconds[1]


def estimate(workload: Workload, layouts: Sequence[Layout], target: Target) -> float:
    """Seconds by the bytes that a kernel moves; several passes over those that lie in another order than its result.

    As from memory, though most lie in a cache, so that what was measured wins ties. At the end all threads meet.
    """
    types = workload.types()
    kinds = [types[n] for n in (*range(len(workload.inputs)), *workload.outputs)]
    result = bare(layouts[-1])
    moved = 0.0
    for kind, layout in zip(kinds, layouts, strict=True):
        mixed = layout.rank == result.rank and bare(layout) != result
        moved += layout.elements(kind.shape) * DType(kind.dtype).bytes * (MIXED if mixed else 1.0)
    speed = Speed.of(target)
    return target.core.barrier_cycles / speed.clock + moved / speed.dram


def uniform(workload: Workload, form: Layout) -> Interface:
    """A streaming kernel's layouts when all of its tensors that can have the form of its result have it."""
    types = workload.types()
    kinds = [types[n] for n in (*range(len(workload.inputs)), *workload.outputs)]
    constant = [entry.constant for entry in workload.inputs] + [False] * len(workload.outputs)
    full = types[workload.outputs[0]].shape
    return Interface(
        tuple(
            form if not fixed and len(kind.shape) == len(full) and holds(form, kind.shape) else
            Layout.row_major(len(kind.shape))
            for kind, fixed in zip(kinds, constant, strict=True)
        )
    )  # fmt: skip


def holds(form: Layout, shape: Sequence[int]) -> bool:
    """Whether a tensor fills the blocks of a form at least once."""
    return form.rank == len(shape) and all(shape[d] >= block for d, block in form.order if block)
