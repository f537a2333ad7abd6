"""Data movement: chains of reshapes and of transposes become one node, transposes that move nothing reshapes.

requires: a verified graph.    ensures: no reshape of a reshape, no transpose of a transpose.
"""

from __future__ import annotations

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.sweep import Sweep


def merge_movement(graph: Graph) -> Graph:
    """`reshape(reshape(x))` --> `reshape(x)`; `transpose(transpose(x))` --> `transpose(x)`."""
    sweep = Sweep(graph)
    for node in sweep:
        producer = sweep.producers.get(node.inputs[0]) if node.inputs else None
        if node.op == "reshape" and producer is not None and producer.op == "reshape":
            sweep.replace(node, sweep.emit(node, "reshape", producer.inputs, shape=node.output.shape))
        elif node.op == "transpose" and producer is not None and producer.op == "transpose":
            inner = producer.int_tuple("perm")
            perm = tuple(inner[axis] for axis in node.int_tuple("perm"))
            sweep.replace(node, sweep.emit(node, "transpose", producer.inputs, perm=perm))
        elif node.op == "transpose" and _keeps_order(node, sweep.values[node.inputs[0]].shape):
            sweep.replace(node, sweep.emit(node, "reshape", node.inputs, shape=node.output.shape))
        else:
            sweep.keep(node)
    return sweep.result()


def _keeps_order(node: Node, shape: tuple[int, ...]) -> bool:
    """Whether a transpose moves axes of extent 1 only, so that no element changes its place in memory."""
    moved = [axis for axis in node.int_tuple("perm") if shape[axis] != 1]
    return moved == sorted(moved)
