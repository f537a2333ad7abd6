"""Data movement: chains of reshapes and of transposes become one node, transposes that move nothing reshapes.

requires: a verified graph.    ensures: no reshape of a reshape, no transpose of a transpose.
"""

from __future__ import annotations

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep, rewrite


def merge_movement(graph: Graph) -> Graph:
    """`reshape(reshape(x))` --> `reshape(x)`; `transpose(transpose(x))` --> `transpose(x)`."""
    return rewrite(graph, _merged, ("reshape", "transpose"))


def _merged(sweep: Sweep, node: Node) -> str | None:
    inner = made_by(sweep, node.inputs[0], node.op)
    if node.op == "reshape":
        return sweep.emit(node, "reshape", inner.inputs, shape=node.output.shape) if inner is not None else None
    if inner is not None:
        before = inner.int_tuple("perm")
        return sweep.emit(node, "transpose", inner.inputs, perm=tuple(before[axis] for axis in node.int_tuple("perm")))
    if _keeps_order(node, sweep.values[node.inputs[0]].shape):
        return sweep.emit(node, "reshape", node.inputs, shape=node.output.shape)
    return None


def _keeps_order(node: Node, shape: tuple[int, ...]) -> bool:
    """Whether a transpose moves axes of extent 1 only, so that no element changes its place in memory."""
    moved = [axis for axis in node.int_tuple("perm") if shape[axis] != 1]
    return moved == sorted(moved)
