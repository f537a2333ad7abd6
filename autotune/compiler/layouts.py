"""Layout assignment over the whole graph: the least time of all kernels and transforms together.

Rules of thumb give an assignment that needs no measurement (`slots.place`). Where records say what kernels cost in
other layouts, one problem is solved for the graph (`pbqp`): an option of a kernel is the form (order and blocks) of
what it writes and of what it reads, with its time; where a form read is not the form written, an edge costs the
transform. Streaming kernels read any form, which costs when it is not the one they write. Halos follow from the forms,
as by rule. The better of the two assignments is taken, the rules' when in doubt. NeoCPU (Liu et al., ATC'19).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from autotune.codegen.object_cache import ObjectCache
from autotune.compiler.choose import Choice, Chooser
from autotune.compiler.costs import Costs, holds, uniform
from autotune.compiler.pbqp import Costs as Matrix
from autotune.compiler.pbqp import solve
from autotune.compiler.slots import Assignment, Decisions, KernelStep, expected, place
from autotune.compiler.wishes import Wishes, bare, is_reshape, is_slice, leads_layouts, slice_start
from autotune.graph.ir import Graph
from autotune.graph.partition import Group
from autotune.ops.workload import TensorType
from autotune.search_spaces import Interface
from autotune.tensor.layout import Layout

GAIN = 0.97
"""Kernels in other layouts than the rules' must take less than this share of the time of those in their place."""


def assign(
    graph: Graph,
    groups: tuple[Group, ...],
    chooser: Chooser,
    cache: ObjectCache | None = None,
    foresee: Callable[[KernelStep], None] | None = None,
) -> Assignment:
    """Choose layouts for all values and list the kernels, transforms included.

    Args:
        foresee: told of kernels as soon as it is known what they should be; a step that it is told of has no operands.

    Raises:
        WorkloadError: no template can compute a group.
    """
    wishes = Wishes(chooser, cache)
    if foresee is not None:
        for step in expected(graph, groups, wishes):
            foresee(step)
    by_rule = place(graph, groups, wishes)
    if not any(step.choice.tuned for step in by_rule.steps):
        return by_rule
    costs = Costs(chooser)
    best = by_rule
    decisions = decide(graph, groups, wishes, costs)
    for candidate in (decisions, Decisions(interfaces=decisions.interfaces)):
        decided = place(graph, groups, wishes, candidate)
        if costs.gains(decided, best, GAIN):
            best = decided
    return best


@dataclass(frozen=True, slots=True)
class Option:
    """A way to compute a group.

    Attributes:
        reads: layout of each input, halo included; None where any will do.
        writes: form of the output.
        seconds: the kernel's own time.
        record: the interface and the record behind it, when the template would choose otherwise.
    """

    reads: tuple[Layout | None, ...]
    writes: Layout
    seconds: float
    record: tuple[Interface, Choice] | None = None


def decide(graph: Graph, groups: tuple[Group, ...], wishes: Wishes, costs: Costs) -> Decisions:
    """The options that take the least time together."""
    problem = _Problem(graph, groups, wishes, costs)
    chosen = solve(problem.alone, problem.edges)
    interfaces: dict[str, tuple[Interface, Choice]] = {}
    forms: dict[str, Layout] = {}
    for group, options, number in zip(groups, problem.options, chosen, strict=True):
        option = options[number]
        if option.record is not None:
            interfaces[group.outputs[0]] = option.record
        elif not leads_layouts(group.workload) and not is_reshape(group):
            forms[group.outputs[0]] = option.writes
    return Decisions(interfaces, forms)


class _Problem:
    """`alone`: the cost of each option of each group; `edges`: between the options of groups that share a value."""

    def __init__(self, graph: Graph, groups: tuple[Group, ...], wishes: Wishes, costs: Costs) -> None:
        self.graph, self.wishes, self.costs = graph, wishes, costs
        number = self.number = {name: n for n, group in enumerate(groups) for name in group.outputs}
        found = [self._leading(group) if leads_layouts(group.workload) else [] for group in groups]
        named = [layout for options in found for option in options for layout in (*option.reads, option.writes)]
        forms = dict.fromkeys(bare(layout) for layout in named if layout is not None)
        self.forms = [form for form in forms if any(block for _, block in form.order)]
        views = {group.outputs[0] for group in groups if group.is_view and is_reshape(group)}
        self.without_halo = views | {value.name for value in graph.inputs}
        self.options = [options or list(self._streaming(group)) for group, options in zip(groups, found, strict=True)]
        self.alone: list[Matrix] = [np.array([option.seconds for option in options]) for options in self.options]
        self.edges: dict[tuple[int, int], Matrix] = {}
        for n, group in enumerate(groups):
            for position, name in enumerate(group.inputs):
                if name in number:
                    matrix = self._edge(group, n, position)
                    known = self.edges.get((number[name], n))
                    self.edges[(number[name], n)] = matrix if known is None else known + matrix
                elif name not in graph.constants:
                    plain = Layout.row_major(len(graph.values[name].shape))
                    self.alone[n] = self.alone[n] + [
                        self._meeting(name, plain, group, option, position) for option in self.options[n]
                    ]
        for name in dict.fromkeys(output.value for output in graph.outputs):
            if name in number:
                plain = Layout.row_major(len(graph.values[name].shape))
                self.alone[number[name]] = self.alone[number[name]] + [
                    0.0 if given == plain else self.costs.transform(self._type(name), given, plain)
                    for given in self._given(name)
                ]

    def _leading(self, group: Group) -> list[Option]:
        """What the template wants, and what was measured in other layouts."""
        own = self.wishes.choice(group.workload)
        options = [self._option(group, self.wishes.of(group), own.seconds if own.tuned else None)]
        if own.tuned:
            for interface, choice in self.costs.choose.measured(group.workload).items():
                options.append(self._option(group, interface.layouts, choice.seconds, (interface, choice)))
        return options

    def _option(
        self,
        group: Group,
        layouts: tuple[Layout, ...],
        seconds: float | None,
        record: tuple[Interface, Choice] | None = None,
    ) -> Option:
        reads = tuple(None if name in self.graph.constants else layout for name, layout in zip(group.inputs, layouts))
        return Option(reads, bare(layouts[-1]), seconds or 0.0, record)

    def _streaming(self, group: Group) -> Iterator[Option]:
        """One option per form of the output."""
        anything = (None,) * len(group.inputs)
        shape = self.graph.values[group.outputs[0]].shape
        plain = Layout.row_major(len(shape))
        if is_reshape(group):
            yield Option((Layout.row_major(len(self.graph.values[group.inputs[0]].shape)),), plain, 0.0)
            return
        several = len(group.outputs) > 1
        for form in (plain, *(() if several else self.forms)):
            if form == plain or holds(form, shape):
                seconds = self.costs.streaming(group.workload, uniform(group.workload, form).layouts)
                yield Option(anything, form, 0.0 if self._written_in_place(group, form) else seconds)

    def _written_in_place(self, group: Group, form: Layout) -> bool:
        """Whether a concatenation or slice needs no kernel, when what it is made of is written in its form."""
        if is_slice(group):
            (source,) = group.inputs
            shape = self.graph.values[source].shape
            computed = source in self.number and holds(form, shape)
            return computed and slice_start(group.workload.nodes[0], shape, form) is not None
        if not group.is_view:
            return False
        axis = int(group.workload.nodes[0].attr("axis"))
        return all(self.graph.values[part].shape[axis] % form.block(axis) == 0 for part in group.inputs)

    def _given(self, name: str) -> list[Layout]:
        """The form of a value for each option of the group that writes it; several outputs are all row-major."""
        rank = len(self.graph.values[name].shape)
        forms = [option.writes for option in self.options[self.number[name]]]
        return [form if form.rank == rank else Layout.row_major(rank) for form in forms]

    def _edge(self, group: Group, consumer: int, position: int) -> Matrix:
        name = group.inputs[position]
        return np.array(
            [
                [self._meeting(name, given, group, option, position) for option in self.options[consumer]]
                for given in self._given(name)
            ]
        )

    def _meeting(self, name: str, given: Layout, group: Group, option: Option, position: int) -> float:
        """What it costs to read a value in the form in which it is given."""
        wanted, kind = option.reads[position], self._type(name)
        if wanted is not None:
            alike = is_reshape(group) and _same_memory(given, wanted, kind.shape)
            served = bare(wanted) == given and (wanted == given or name not in self.without_halo)
            return 0.0 if alike or served else self.costs.transform(kind, given, wanted)
        if option.writes.rank != given.rank or option.writes == given or not holds(option.writes, kind.shape):
            return 0.0
        layouts = list(uniform(group.workload, option.writes).layouts)
        layouts[position] = given
        return self.costs.streaming(group.workload, layouts) - option.seconds

    def _type(self, name: str) -> TensorType:
        value = self.graph.values[name]
        return TensorType(value.dtype, value.shape)


def _same_memory(form: Layout, other: Layout, shape: tuple[int, ...]) -> bool:
    """Whether two forms are the same bytes, since only one dimension of the tensor has several elements."""
    return form.elements(shape) == other.elements(shape) and sum(extent > 1 for extent in shape) <= 1
