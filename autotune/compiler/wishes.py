"""What layouts the kernels want: those of their templates, or those of a record."""

from __future__ import annotations

from autotune.codegen.object_cache import ObjectCache
from autotune.compiler.choose import Choice, Chooser
from autotune.compiler.kernel_cache import keep_layouts, kept_layouts
from autotune.errors import ScheduleError
from autotune.graph.partition import Group
from autotune.ops.registry import has_trait
from autotune.ops.traits import Trait
from autotune.ops.workload import Workload, WorkloadNode
from autotune.tensor.layout import Layout


def leads_layouts(workload: Workload) -> bool:
    """Convolutions and matrix products decide layouts; a record of theirs holds whatever layouts surround it."""
    return workload.anchor is not None and has_trait(workload.anchor.op, Trait.LEADS_LAYOUT)


def bare(layout: Layout) -> Layout:
    """The layout without its halo: order and blocks."""
    return Layout(layout.order, ((0, 0),) * layout.rank)


def is_reshape(group: Group) -> bool:
    return group.workload.nodes[0].op == "reshape"


def is_slice(group: Group) -> bool:
    return [node.op for node in group.workload.nodes] == ["slice"]


def slice_start(node: WorkloadNode, shape: tuple[int, ...], layout: Layout) -> int | None:
    """The first element of a slice of a tensor, if its elements lie there as those of a tensor of that layout would.

    They do when one dimension is cut, between blocks, with extents of 1 outside of it and no halo around it.
    """
    begin, size, step = (node.attr(name) for name in ("begin", "size", "step"))
    cut = [d for d, extent in enumerate(shape) if size[d] != extent]
    if len(cut) != 1 or set(step) != {1} or 0 in size:
        return None
    (d,) = cut
    block, outside = layout.block(d), layout.order.index((d, 0))
    whole = begin[d] % block == 0 and (size[d] % block == 0 or begin[d] + size[d] == shape[d])
    physical = layout.physical_shape(shape)
    if not whole or layout.halo[d] != (0, 0) or any(extent != 1 for extent in physical[:outside]):
        return None
    start: int = begin[d] // block * layout.strides(shape)[outside]
    return start


def _row_major(workload: Workload) -> tuple[Layout, ...]:
    types = workload.types()
    return tuple(Layout.row_major(len(types[n].shape)) for n in (*range(len(workload.inputs)), *workload.outputs))


class Wishes:
    """The layouts that templates would choose by themselves, each found once."""

    def __init__(self, chooser: Chooser, cache: ObjectCache | None) -> None:
        self.choose, self.cache = chooser, cache
        self._known: dict[Workload, tuple[Layout, ...]] = {}

    def choice(self, workload: Workload) -> Choice:
        """The schedule of a kernel that chooses its layouts."""
        return self.choose.own(workload)

    def of(self, group: Group) -> tuple[Layout, ...]:
        """One layout per operand of a group, inputs then outputs; row-major where its template has no opinion."""
        workload = group.workload
        if workload not in self._known:
            if group.is_view or not leads_layouts(workload):
                self._known[workload] = _row_major(workload)
            else:
                self._known[workload] = self._of_template(workload)
        return self._known[workload]

    def _of_template(self, workload: Workload) -> tuple[Layout, ...]:
        choice, target = self.choice(workload), self.choose.target
        kept = kept_layouts(self.cache, workload, choice, target)
        if kept is not None:
            return kept
        try:
            found = choice.schedule(workload, target).layouts
        except ScheduleError:  # the kernel will have to do without this choice, and says so when it is built
            return _row_major(workload)
        keep_layouts(self.cache, workload, choice, target, found)
        return found
