"""Slots: the physical buffers of a compiled model, and the kernel steps between them.

Layout assignment by rule: a kernel with an anchor (convolution, matrix product) gets the layouts its template wants,
streaming kernels follow their neighbours, and a transform is inserted only where two anchors disagree. A value's halo
is as wide as its hungriest consumer asks, so that no convolution tests for edges or copies a border.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.codegen.object_cache import ObjectCache
from autotune.compiler.choose import Choice, Chooser
from autotune.compiler.kernel_cache import cached_layouts
from autotune.graph.ir import Graph
from autotune.graph.partition import COMPUTE, Group
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.schedule import Schedule
from autotune.search_spaces import Interface, make_schedule
from autotune.target import Target
from autotune.tensor.layout import Layout


@dataclass(frozen=True, slots=True)
class Slot:
    """A value in one physical form. `part_of` (slot number, first element) makes it a view of another slot."""

    value: str
    dtype: str
    shape: tuple[int, ...]
    layout: Layout
    part_of: tuple[int, int] | None = None

    @property
    def elements(self) -> int:
        return self.layout.elements(self.shape)


@dataclass(frozen=True, slots=True)
class KernelStep:
    """One kernel: what it computes, from slots or constants (by value name) into slots, in which layouts."""

    workload: Workload
    choice: Choice
    interface: Interface
    inputs: tuple[int | str, ...]
    outputs: tuple[int, ...]


@dataclass
class Assignment:
    """All slots and steps of a model. `outputs` and `inputs` map graph values to row-major slots."""

    slots: list[Slot] = field(default_factory=list)
    steps: list[KernelStep] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)

    def root(self, slot: int) -> tuple[int, int]:
        """The slot that owns the memory, and the first element in it."""
        offset = 0
        while (part := self.slots[slot].part_of) is not None:
            slot, offset = part[0], offset + part[1]
        return slot, offset


def leads_layouts(workload: Workload) -> bool:
    """Convolutions and matrix products decide layouts; a record of theirs holds whatever layouts surround it."""
    return workload.anchor is not None and workload.anchor.op in COMPUTE


def assign(graph: Graph, groups: tuple[Group, ...], chooser: Chooser, cache: ObjectCache | None = None) -> Assignment:
    """Choose layouts for all values and list the kernels, transforms included.

    Raises:
        WorkloadError: no template can compute a group.
    """
    return _Assigner(graph, groups, chooser, cache).run()


def layouts_of(s: Schedule) -> tuple[Layout, ...]:
    """The layout of each operand, inputs then outputs."""
    operands = [*s.compute.inputs, *(s.state.tensor(n) for n in s.compute.outputs)]
    chosen = dict(s.state.layouts)
    return tuple(chosen.get(t.name) or Layout.row_major(len(t.shape)) for t in operands)


class _Assigner:
    def __init__(self, graph: Graph, groups: tuple[Group, ...], chooser: Chooser, cache: ObjectCache | None) -> None:
        self.graph, self.groups, self.choose, self.cache = graph, groups, chooser, cache
        self.target: Target = chooser.target
        self.out = Assignment()
        self.slot_of: dict[tuple[str, Layout], int] = {}
        self.primary: dict[str, Layout] = {}
        self.wanted: dict[str, list[Layout]] = {}
        self._wishes: dict[str, tuple[Layout, ...]] = {}

    def run(self) -> Assignment:
        for group in self.groups:
            for name, layout in zip(group.inputs, self._wish(group)):
                if self._anchored(group) and name not in self.graph.constants:
                    self.wanted.setdefault(name, []).append(layout)
        for value in self.graph.inputs:
            layout = Layout.row_major(len(value.shape))
            self.primary[value.name] = layout
            self.out.inputs[value.name] = self._new_slot(value.name, layout)
        for group in self.groups:
            for name in group.outputs:
                form = self._form(group, name)
                # A view is memory that somebody else wrote: it has no halo, whatever its readers wish.
                self.primary[name] = form if group.is_view and _is_reshape(group) else self._with_halo(name, form)
        self._reserve_concats()
        for group in self.groups:
            self._place(group)
        for output in self.graph.outputs:
            if output.value not in self.graph.constants:
                rank = len(self.graph.values[output.value].shape)
                self.out.outputs[output.value] = self._in_layout(output.value, Layout.row_major(rank))
        return self.out

    def _anchored(self, group: Group) -> bool:
        """The template has an opinion about layouts; other kernels take those of their neighbours."""
        return leads_layouts(group.workload)

    def _wish(self, group: Group) -> tuple[Layout, ...]:
        """The layouts that the group's template would choose by itself, inputs then outputs."""
        w = group.workload
        if group.is_view or not self._anchored(group):
            types = [self.graph.values[n] for n in (*group.inputs, *group.outputs)]
            return tuple(Layout.row_major(len(t.shape)) for t in types)
        if w.key not in self._wishes:
            config = self.choose(w).config
            self._wishes[w.key] = cached_layouts(
                self.cache, w, config, self.target, lambda: layouts_of(make_schedule(w, config, self.target, None))
            )
        return self._wishes[w.key]

    def _form(self, group: Group, name: str) -> Layout:
        """Order and blocks of a group's output, halo apart."""
        value = self.graph.values[name]
        plain = Layout.row_major(len(value.shape))
        if self._anchored(group):
            return _bare(self._wish(group)[-1])
        if len(value.shape) != 4 or _is_reshape(group) or len(group.outputs) > 1:
            return plain
        wanted = [_bare(x) for x in self.wanted.get(name, []) if x.rank == 4]
        if wanted:
            return wanted[0]
        for source in group.inputs:
            layout = self.primary.get(source)
            if layout is not None and layout.rank == 4 and _bare(layout) != plain:
                block = layout.block(1)
                reshaped = any(n.op in ("reshape", "transpose") for n in group.workload.nodes)
                if block > 1 and not reshaped and value.shape[1] >= block:
                    return _bare(layout)
        return plain

    def _with_halo(self, name: str, form: Layout) -> Layout:
        """The form with the widest halo that an anchored consumer of the same form wants."""
        halo = [(0, 0)] * form.rank
        for layout in self._wanted_through_concat(name):
            if _bare(layout) == form:
                halo = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(halo, layout.halo)]
        return form.with_halo(halo)

    def _wanted_through_concat(self, name: str) -> list[Layout]:
        """Wishes of consumers; a part of a concatenation must look like the whole."""
        found = list(self.wanted.get(name, []))
        for group in self.groups:
            if group.workload.nodes[0].op == "concat" and name in group.inputs:
                found += self._wanted_through_concat(group.outputs[0])
        return found

    def _reserve_concats(self) -> None:
        """Concatenations along channels whose parts can be written in place: parts become views of the whole."""
        for group in reversed(self.groups):
            if group.workload.nodes[0].op != "concat" or not group.is_view:
                continue
            (name,) = group.outputs
            layout = self.primary[name]
            if not self._can_share(group, layout):
                continue
            whole = self.slot_of.get((name, layout))
            if whole is None:
                whole = self._new_slot(name, layout)
            offset = 0
            for part in group.inputs:
                shape = self.graph.values[part].shape
                self.primary[part] = layout
                self._new_slot(part, layout, (whole, offset))
                offset += layout.elements(shape)

    def _can_share(self, group: Group, layout: Layout) -> bool:
        """Parts lie one after another in memory, and each is produced by one kernel for this purpose."""
        (node,) = group.workload.nodes
        axis = int(node.attr("axis"))
        block = layout.block(axis)
        if len(set(group.inputs)) != len(group.inputs) or layout.halo[axis] != (0, 0):
            return False
        outer = layout.order.index((axis, 0))
        shape = self.graph.values[group.outputs[0]].shape
        physical = layout.physical_shape(shape)
        if any(extent != 1 for extent in physical[:outer]):
            return False
        produced = {
            n for g in self.groups if not (g.is_view and g.workload.nodes[0].op == "reshape") for n in g.outputs
        }
        for part in group.inputs:
            value = self.graph.values[part]
            if part not in produced or (part, layout) in self.slot_of or value.shape[axis] % block:
                return False
            if _bare(self.primary[part]) != _bare(layout):
                return False
        return True

    def _place(self, group: Group) -> None:
        op, name = group.workload.nodes[0].op, group.outputs[0]
        if _is_reshape(group) and group.is_view and group.inputs[0] not in self.graph.constants:
            self._view(group.inputs[0], name)
            return
        layout = self.primary[name]
        if op == "concat" and group.is_view:
            parts = [self.slot_of.get((p, layout)) for p in group.inputs]
            if all(p is not None and self.out.slots[p].part_of is not None for p in parts):
                whole = self.slot_of.get((name, layout))
                if whole is not None and all(self.out.slots[p].part_of[0] == whole for p in parts if p is not None):  # type: ignore[index]
                    return
        self._kernel(group, self._wish(group))

    def _view(self, source: str, name: str) -> None:
        """A reshape: the same memory, when that is row-major or has nothing to reorder."""
        shape = self.graph.values[source].shape
        layout = self.primary[source]
        plain = Layout.row_major(len(shape))
        trivial = layout.elements(shape) == plain.elements(shape) and all(e == 1 for e in shape[2:]) and shape[0] == 1
        if layout != plain and trivial and len(shape) == 4:
            slot = self._in_layout(source, layout)
        else:
            slot = self._in_layout(source, plain)
        self._new_slot(name, self.primary[name], (slot, 0))

    def _kernel(self, group: Group, wish: tuple[Layout, ...]) -> None:
        operands: list[int | str] = []
        layouts: list[Layout] = []
        workload = group.workload
        anchored = leads_layouts(workload)
        for n, name in enumerate(group.inputs):
            if name in self.graph.constants:
                operands.append(name)
                layouts.append(wish[n])
                continue
            slot = self._served(name, wish[n]) if anchored else self._in_layout(name, self.primary[name])
            operands.append(slot)
            layouts.append(self.out.slots[slot].layout)
        outputs: list[int] = []
        for name in group.outputs:
            kept = self.slot_of.get((name, self.primary[name]))
            outputs.append(kept if kept is not None else self._new_slot(name, self.primary[name]))
            layouts.append(self.primary[name])
        interface = Interface(tuple(layouts))
        choice = self.choose(workload, None if anchored else interface)
        self.out.steps.append(KernelStep(workload, choice, interface, tuple(operands), tuple(outputs)))

    def _served(self, name: str, wish: Layout) -> int:
        """A slot of the value in the order wished for, with at least the halo wished for."""
        primary = self.primary[name]
        if _bare(primary) == _bare(wish) and all(a >= c and b >= d for (a, b), (c, d) in zip(primary.halo, wish.halo)):
            return self._in_layout(name, primary)
        return self._in_layout(name, wish)

    def _in_layout(self, name: str, layout: Layout) -> int:
        """The slot of a value in a layout; a transform kernel makes it when there is none."""
        if (name, layout) in self.slot_of:
            return self.slot_of[(name, layout)]
        source = self.slot_of[(name, self.primary[name])]
        value = self.graph.values[name]
        workload = Workload(
            (WorkloadInput(TensorType(value.dtype, value.shape)),), (WorkloadNode.make("layout", (0,)),), (1,)
        )
        slot = self._new_slot(name, layout)
        interface = Interface((self.out.slots[source].layout, layout))
        self.out.steps.append(KernelStep(workload, self.choose(workload, interface), interface, (source,), (slot,)))
        return slot

    def _new_slot(self, name: str, layout: Layout, part_of: tuple[int, int] | None = None) -> int:
        value = self.graph.values[name]
        self.out.slots.append(Slot(name, value.dtype, value.shape, layout, part_of))
        self.slot_of[(name, layout)] = len(self.out.slots) - 1
        return len(self.out.slots) - 1


def _is_reshape(group: Group) -> bool:
    return group.workload.nodes[0].op == "reshape"


def _bare(layout: Layout) -> Layout:
    """The layout without its halo."""
    return Layout(layout.order, ((0, 0),) * layout.rank)
