"""Kernels leave out the rows that nobody reads: those beyond an end that is known when the program runs.

requires: the graph as it will be compiled: it comes last, once.
ensures: where all readers of a kernel's result stop at an end that is an input, `until` stands behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.graph.ir import Graph, Node
from autotune.graph.partition import partition
from autotune.graph.passes.ends import index_below, position_below, scalar_source
from autotune.graph.passes.match import number
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.graph.reach import Limits, reach
from autotune.ops.registry import has_trait
from autotune.ops.traits import Trait
from autotune.ops.workload import Workload

Ends = dict[int, frozenset[str]]
"""Per dimension, inputs of the graph that positions which anybody reads are below."""


def unread_rows(graph: Graph) -> Graph:
    """`where(i < n, f(matmul(x, w))[i], 0)` --> `until(f(matmul(x, w)), n)`; so with what only leads to it, where the
    rest may be anything."""
    scalars = {value.name for value in graph.inputs if (value.dtype, value.shape) == ("i64", ())}
    if not scalars:
        return graph
    graph = rewrite(graph, _until, ("where",))
    wanted = _wanted(graph, scalars)
    ends = {
        name: wanted[name] for group in partition(graph) for name in group.outputs
        if len(group.outputs) == 1 and _computes(group.workload)
    }  # fmt: skip
    sweep = Sweep(graph)
    for node in sweep:
        sweep.keep(node)
        result = node.name
        for axis, names in sorted(ends.get(node.name, {}).items()):
            ended = node.op == "until" and node.attr("axis") == axis and node.inputs[1] in names
            if node.output.shape[axis] > 1 and not ended:
                result = sweep.emit(node, "until", (result, min(names)), axis=axis, rest="any")
        if result != node.name:
            sweep.replace(node, result)
    return sweep.result()


def _computes(workload: Workload) -> bool:
    """Whether a kernel does more than to move or to change elements one by one."""
    return workload.anchor is not None and not has_trait(workload.anchor.op, Trait.MOVES)


def _until(sweep: Sweep, node: Node) -> str | None:
    """A selection of zeros by the position, as what it is."""
    condition, data, other = node.inputs
    below = position_below(sweep.graph, condition)
    if below is None or number(sweep, other) != 0 or sweep.values[data].shape != node.output.shape:
        return None
    axis = below[0] + len(node.output.shape) - len(sweep.values[condition].shape)
    return sweep.emit(node, "until", (data, below[1]), axis=axis)


def _wanted(graph: Graph, scalars: set[str]) -> Mapping[str, Ends]:
    """Of each value, where its readers stop."""
    wanted: dict[str, Ends] = {name: {} for name in graph.output_values}
    for node in reversed(graph.nodes):
        own = wanted.setdefault(node.name, {})
        for name, limits in zip(node.inputs, _operands(graph, node, own)):
            known = wanted.get(name)
            both = limits if known is None else {d: limits[d] & known[d] for d in limits.keys() & known.keys()}
            wanted[name] = {d: names & scalars for d, names in both.items() if names & scalars}
    return wanted


def _operands(graph: Graph, node: Node, own: Ends) -> list[Ends]:
    """Where a node stops to read each operand, along each dimension, for what is wanted of its result."""
    found = [{d: _resolved(graph, node, limits, own) for d, limits in enumerate(dims)}
             for dims in reach(node, graph.values)]  # fmt: skip
    if node.op == "gather" and (end := index_below(graph, node.inputs[1])) is not None:
        axis = int(node.number("axis")) % len(found[0])
        found[0][axis] |= {end}
    return found


def _resolved(graph: Graph, node: Node, limits: Limits, own: Ends) -> frozenset[str]:
    names = frozenset[str]()
    for kind, which in limits:
        if kind == "axis":
            names |= own.get(which, frozenset())
        elif (end := scalar_source(graph, node.inputs[which])) is not None:
            names |= {end}
    return names
