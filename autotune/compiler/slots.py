"""Slots: the physical buffers of a compiled model, and the kernel steps between them.

`place` follows rules, unless told otherwise: a kernel with an anchor (convolution, matrix product) gets the layouts
its template wants, streaming kernels follow their neighbours, and a transform is inserted only where two anchors
disagree. A value's halo is as wide as its hungriest consumer asks, so that no convolution tests for edges or copies a
border. What deviates from the rules is decided in `layouts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.compiler.choose import Choice
from autotune.compiler.wishes import Wishes, bare, is_reshape, is_slice, leads_layouts, slice_start
from autotune.graph.ir import Graph
from autotune.graph.partition import Group
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.search_spaces import Interface
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
    """One kernel: what it computes, from slots or constants (by value name) into slots, in which layouts.

    `asked` is the interface that the kernel is measured with: None where its template leads and chooses by itself.
    `origins` names the ONNX nodes that it computes, the anchor's first; a transform has that of what it transforms.
    """

    workload: Workload
    choice: Choice
    interface: Interface
    inputs: tuple[int | str, ...]
    outputs: tuple[int, ...]
    asked: Interface | None
    origins: tuple[str, ...] = ()


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

    def lifetimes(self) -> dict[int, list[int]]:
        """The steps at which the memory of each slot that owns some is used, ascending; model outputs to the end."""
        found: dict[int, list[int]] = {}
        for n, step in enumerate(self.steps):
            for slot in (*step.inputs, *step.outputs):
                if isinstance(slot, int):
                    found.setdefault(self.root(slot)[0], []).append(n)
        for slot in self.outputs.values():
            found.setdefault(self.root(slot)[0], []).append(len(self.steps))
        return found


@dataclass(frozen=True, slots=True)
class Decisions:
    """Where not to follow the rules.

    Attributes:
        interfaces: for groups whose template leads, by the name of their output: the layouts and the record to use.
        forms: for other values: order and blocks of what the kernel writes.
    """

    interfaces: Mapping[str, tuple[Interface, Choice]] = field(default_factory=dict)
    forms: Mapping[str, Layout] = field(default_factory=dict)


def place(graph: Graph, groups: tuple[Group, ...], wishes: Wishes, decisions: Decisions | None = None) -> Assignment:
    """Layouts for all values, and the kernels in order, transforms included.

    Raises:
        WorkloadError: no template can compute a group.
    """
    return _Placer(graph, groups, wishes, decisions or Decisions()).run()


def expected(graph: Graph, groups: tuple[Group, ...], wishes: Wishes) -> Iterator[KernelStep]:
    """The kernels that lead layouts, the last first, without operands, and as soon as its readers' wishes are known:
    each as `place` has it where those before it write the form that it wants to read."""
    wanted: dict[str, list[Layout]] = {}
    told: set[tuple[Workload, tuple[Layout, ...]]] = set()
    for group in reversed(groups):
        if leads_layouts(group.workload):
            layouts = wishes.of(group)
            for name, layout in zip(group.inputs, layouts):
                if name not in graph.constants:
                    wanted.setdefault(name, []).insert(0, layout)
            layouts = tuple(
                layout if name in graph.constants else with_halo(bare(layout), wanted.get(name, ()))
                for name, layout in zip((*group.inputs, *group.outputs), layouts)
            )
            if (group.workload, layouts) not in told:
                told.add((group.workload, layouts))
                yield KernelStep(group.workload, wishes.choice(group.workload), Interface(layouts), (), (), None)


def with_halo(form: Layout, wishes: Sequence[Layout]) -> Layout:
    """A form with the widest halo that wishes of the same form have, filled as the first asks."""
    found = [x for x in wishes if bare(x) == form != x]
    halo = [(0, 0)] * form.rank
    for layout in found:
        if layout.fill == found[0].fill:
            halo = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(halo, layout.halo)]
    return form.with_halo(halo, found[0].fill if found else 0)


def layout_workload(kind: TensorType) -> Workload:
    """The kernel that copies a tensor from one layout into another."""
    return Workload((WorkloadInput(kind),), (WorkloadNode.make("layout", (0,)),), (1,))


class _Placer:
    def __init__(self, graph: Graph, groups: tuple[Group, ...], wishes: Wishes, decisions: Decisions) -> None:
        self.graph, self.groups, self.wishes, self.decisions = graph, groups, wishes, decisions
        self.choose = wishes.choose
        self.out = Assignment()
        self.slot_of: dict[tuple[str, Layout], int] = {}
        self.primary: dict[str, Layout] = {}
        self.wanted: dict[str, list[Layout]] = {}
        self.of_wholes: dict[str, list[Layout]] = {}
        self.written = {n for g in groups if not (g.is_view and is_reshape(g)) for n in g.outputs}

    def run(self) -> Assignment:
        for group in self.groups:
            if leads_layouts(group.workload):
                for name, layout in zip(group.inputs, self._wish(group)):
                    if name not in self.graph.constants:
                        self.wanted.setdefault(name, []).append(layout)
        for group in reversed(self.groups):  # a part of a concatenation must look like the whole
            if group.workload.nodes[0].op == "concat":
                whole = group.outputs[0]
                for part in group.inputs:
                    wishes = (*self.wanted.get(whole, ()), *self.of_wholes.get(whole, ()))
                    self.of_wholes.setdefault(part, []).extend(wishes)
            if is_slice(group):  # and the other way round
                whole, part = group.inputs[0], group.outputs[0]
                wishes = (*self.wanted.get(part, ()), *self.of_wholes.get(part, ()))
                self.of_wholes.setdefault(whole, []).extend(wishes)
        for value in self.graph.inputs:
            layout = Layout.row_major(len(value.shape))
            self.primary[value.name] = layout
            self.out.inputs[value.name] = self._new_slot(value.name, layout)
        for group in self.groups:
            for name in group.outputs:
                form = self._form(group, name)
                # A view is memory that somebody else wrote: it has no halo, whatever its readers wish.
                self.primary[name] = form if group.is_view and is_reshape(group) else self._with_halo(name, form)
                if is_slice(group) and bare(self.primary[group.inputs[0]]) == form and self._start(group) is not None:
                    self.primary[name] = self.primary[group.inputs[0]]
        self._reserve_concats()
        for group in self.groups:
            self._place(group)
        for output in self.graph.outputs:
            if output.value not in self.graph.constants:
                rank = len(self.graph.values[output.value].shape)
                self.out.outputs[output.value] = self._in_layout(output.value, Layout.row_major(rank))
        return self.out

    def _wish(self, group: Group) -> tuple[Layout, ...]:
        """The layouts that a group would have if it alone decided."""
        decided = self.decisions.interfaces.get(group.outputs[0])
        return self.wishes.of(group) if decided is None else decided[0].layouts

    def _form(self, group: Group, name: str) -> Layout:
        """Order and blocks of a group's output, halo apart."""
        value = self.graph.values[name]
        plain = Layout.row_major(len(value.shape))
        if leads_layouts(group.workload):
            return bare(self._wish(group)[-1])
        if name in self.decisions.forms:
            return self.decisions.forms[name]
        if is_reshape(group) or len(group.outputs) > 1:
            return plain
        wanted = [bare(x) for x in self.wanted.get(name, []) if x.rank == plain.rank]
        if wanted:
            return wanted[0]
        for source in group.inputs:
            layout = self.primary.get(source)
            if layout is not None and layout.rank == plain.rank > 1 and bare(layout) != plain:
                block = layout.block(1)
                reshaped = any(n.op in ("reshape", "transpose") for n in group.workload.nodes)
                if block > 1 and not reshaped and value.shape[1] >= block:
                    return bare(layout)
        return plain

    def _with_halo(self, name: str, form: Layout) -> Layout:
        """With the halo that anchored consumers want."""
        return with_halo(form, (*self.wanted.get(name, ()), *self.of_wholes.get(name, ())))

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
        if len(set(node.inputs)) != len(node.inputs) or layout.halo[axis] != (0, 0):
            return False
        outer = layout.order.index((axis, 0))
        shape = self.graph.values[group.outputs[0]].shape
        physical = layout.physical_shape(shape)
        if any(extent != 1 for extent in physical[:outer]):
            return False
        for part in group.inputs:
            value = self.graph.values[part]
            if part not in self.written or (part, layout) in self.slot_of or value.shape[axis] % block:
                return False
            if bare(self.primary[part]) != bare(layout):
                return False
        return True

    def _place(self, group: Group) -> None:
        op, name = group.workload.nodes[0].op, group.outputs[0]
        if is_reshape(group) and group.is_view and group.inputs[0] not in self.graph.constants:
            self._view(group.inputs[0], name)
            return
        if is_slice(group) and self._slice(group):
            return
        layout = self.primary[name]
        if op == "concat" and group.is_view:
            whole = self.slot_of.get((name, layout))
            if whole is not None and all(self._lies_in(whole, part, layout) for part in group.inputs):
                return
        self._kernel(group)

    def _lies_in(self, whole: int, part: str, layout: Layout) -> bool:
        """Whether a value of this layout is a part of the memory of the slot `whole`."""
        slot = self.slot_of.get((part, layout))
        part_of = self.out.slots[slot].part_of if slot is not None else None
        return part_of is not None and part_of[0] == whole

    def _view(self, source: str, name: str) -> None:
        """A reshape: the same memory, when that is row-major or has nothing to reorder."""
        shape = self.graph.values[source].shape
        layout = self.primary[source]
        plain = Layout.row_major(len(shape))
        trivial = len(shape) == 4 and (shape[0], *shape[2:]) == (1, 1, 1)
        if layout != plain and trivial and layout.elements(shape) == plain.elements(shape):
            slot = self._in_layout(source, layout)
        else:
            slot = self._in_layout(source, plain)
        self._new_slot(name, self.primary[name], (slot, 0))

    def _slice(self, group: Group) -> bool:
        """Make a slice a part of the memory of what it is taken from, where it lies there in one piece."""
        (source,), (name,) = group.inputs, group.outputs
        start = self._start(group)
        reserved = (name, self.primary[name]) in self.slot_of  # as a part of a concatenation
        if reserved or start is None or bare(self.primary[source]) != bare(self.primary[name]):
            return False
        slot = self._in_layout(source, self.primary[source])
        if self.out.root(slot)[0] in self.out.inputs.values():  # the program can only point to the start of an input
            return False
        self.primary[name] = self.primary[source]
        self._new_slot(name, self.primary[source], (slot, start))
        return True

    def _start(self, group: Group) -> int | None:
        """The first element of a slice in the memory of what it is taken from; None where it needs a kernel."""
        (source,) = group.inputs
        if source in self.graph.constants:
            return None
        return slice_start(group.workload.nodes[0], self.graph.values[source].shape, self.primary[source])

    def _kernel(self, group: Group) -> None:
        operands: list[int | str] = []
        layouts: list[Layout] = []
        workload, wish = group.workload, self._wish(group)
        leads = leads_layouts(workload)
        for n, name in enumerate(group.inputs):
            if name in self.graph.constants:
                operands.append(name)
                layouts.append(wish[n])
                continue
            slot = self._served(name, wish[n]) if leads else self._in_layout(name, self.primary[name])
            operands.append(slot)
            layouts.append(self.out.slots[slot].layout)
        outputs: list[int] = []
        for name in group.outputs:
            kept = self.slot_of.get((name, self.primary[name]))
            outputs.append(kept if kept is not None else self._new_slot(name, self.primary[name]))
            layouts.append(self.primary[name])
        interface = Interface(tuple(layouts))
        decided = self.decisions.interfaces.get(group.outputs[0])
        if decided is not None:
            asked, choice = decided
        elif leads:
            asked, choice = None, self.choose.own(workload)
        else:
            asked, choice = interface, self.choose(workload, interface)
        self.out.steps.append(
            KernelStep(workload, choice, interface, tuple(operands), tuple(outputs), asked, group.origins)
        )

    def _served(self, name: str, wish: Layout) -> int:
        """A slot of the value in the order wished for, with at least the halo wished for."""
        primary = self.primary[name]
        wide = all(a >= c and b >= d for (a, b), (c, d) in zip(primary.halo, wish.halo))
        if bare(primary) == bare(wish) and wide and (primary.fill == wish.fill or wish == bare(wish)):
            return self._in_layout(name, primary)
        return self._in_layout(name, wish)

    def _in_layout(self, name: str, layout: Layout) -> int:
        """The slot of a value in a layout; a transform kernel makes it when there is none."""
        if (name, layout) in self.slot_of:
            return self.slot_of[(name, layout)]
        source = self.slot_of[(name, self.primary[name])]
        value = self.graph.values[name]
        workload = layout_workload(TensorType(value.dtype, value.shape))
        slot = self._new_slot(name, layout)
        interface = Interface((self.out.slots[source].layout, layout))
        choice = self.choose(workload, interface)
        producer = self.graph.producers.get(name)
        origins = producer.origins if producer is not None else (name,)
        self.out.steps.append(KernelStep(workload, choice, interface, (source,), (slot,), interface, origins))
        return slot

    def _new_slot(self, name: str, layout: Layout, part_of: tuple[int, int] | None = None) -> int:
        value = self.graph.values[name]
        self.out.slots.append(Slot(name, value.dtype, value.shape, layout, part_of))
        self.slot_of[(name, layout)] = len(self.out.slots) - 1
        return len(self.out.slots) - 1
