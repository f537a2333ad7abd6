"""Broadcasting is left to the operators that broadcast by themselves.

requires: a verified graph.    ensures: no elementwise operator reads an `expand` without which it computes the same;
no elementwise operator of one operand reads an `expand` that nobody else does.
"""

from __future__ import annotations

from autotune.errors import WorkloadError
from autotune.graph.infer import infer, is_elementwise
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.sweep import Sweep, rewrite


def drop_expands(graph: Graph) -> Graph:
    """`add(expand(x), y)` --> `add(x, y)` where y has the full shape;  `f(expand(x))` --> `expand(f(x))`."""
    return rewrite(graph, _without)


def _without(sweep: Sweep, node: Node) -> str | None:
    if not is_elementwise(node.op):
        return None
    operands = list(node.inputs)
    for position, name in enumerate(node.inputs):
        producer = sweep.producers.get(name)
        if producer is None or producer.op != "expand":
            continue
        if len(operands) == 1 and sweep.sole_use(name):
            inner = sweep.emit(node, node.op, producer.inputs, **dict(node.attrs))
            return sweep.emit(node, "expand", (inner,), shape=node.output.shape)
        fewer = [*operands[:position], producer.inputs[0], *operands[position + 1 :]]
        if _keeps_shape(sweep, node, fewer):
            operands = fewer
    return None if operands == list(node.inputs) else sweep.emit(node, node.op, operands, **dict(node.attrs))


def _keeps_shape(sweep: Sweep, node: Node, operands: list[str]) -> bool:
    try:
        _, shape = infer(node.op, [sweep.values[name] for name in operands], dict(node.attrs))
    except WorkloadError:
        return False
    return shape == node.output.shape
