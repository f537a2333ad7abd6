"""Constant folding: compute now what depends on constants only.

requires: a verified graph.    ensures: no node of bounded size has constant operands only.
"""

from __future__ import annotations

from collections.abc import Container

from autotune.graph.evaluate import evaluate_node
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.sweep import Sweep

MAX_BYTES = 2**28  # of operands and result together: a small file must not become a huge program


def fold_constants(graph: Graph, later: Container[str] = ()) -> Graph:
    """Weights computed in the model (transposed, scaled, padded) become plain weights; operators of `later` stay."""
    sweep = Sweep(graph)
    for node in sweep:
        operands = [array for array in map(sweep.array, node.inputs) if array is not None]
        if len(operands) < len(node.inputs) or node.op in later or not _is_bounded(sweep, node):
            sweep.keep(node)
        elif node.op == "reshape":
            sweep.replace(node, sweep.constant(operands[0].reshape(node.output.shape), node.name))
        elif node.op == "transpose":  # a view: no pass copies a weight that it does not change
            sweep.replace(node, sweep.constant(operands[0].transpose(node.int_tuple("perm")), node.name))
        else:
            types = [sweep.values[name] for name in node.inputs]
            sweep.replace(node, sweep.constant(evaluate_node(node, types, operands), node.name))
    return sweep.result()


def _is_bounded(sweep: Sweep, node: Node) -> bool:
    return node.output.nbytes + sum(sweep.values[name].nbytes for name in node.inputs) <= MAX_BYTES
