"""Reductions of reductions of the same kind, one axis after the other, become one.

requires: a verified graph.
ensures: no sum, mean, product, largest or smallest value is taken of one that nobody else reads.
"""

from __future__ import annotations

from autotune.graph.infer import REDUCTIONS
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.tensor import DType


def merge_reductions(graph: Graph) -> Graph:
    """`mean(mean(x, 3), 2)` --> `mean(x, 2 and 3)`."""
    return rewrite(graph, _merged, REDUCTIONS)


def _merged(sweep: Sweep, node: Node) -> str | None:
    inner = made_by(sweep, node.inputs[0], node.op)
    if inner is None or not sweep.sole_use(inner.name):
        return None
    if node.op == "reduce_mean" and not DType(node.output.dtype).is_float:
        return None  # rounded after each
    rank = len(sweep.values[inner.inputs[0]].shape)
    first = {axis % rank for axis in inner.int_tuple("axes")}
    left = list(range(rank)) if inner.attr("keepdims") else [axis for axis in range(rank) if axis not in first]
    axes = tuple(sorted(first | {left[axis] for axis in node.int_tuple("axes")}))
    whole = sweep.emit(node, node.op, inner.inputs, axes=axes, keepdims=True)
    if sweep.values[whole].shape == node.output.shape:
        return whole
    return sweep.emit(node, "reshape", (whole,), shape=node.output.shape)
