"""Every reader of dequantised bytes dequantises them itself, so that what lies between kernels is bytes.

requires: common-subexpressions, which puts them together again: it comes last, once.
ensures: nothing but one node, or the user, reads a `dequantize` of bytes.
"""

from __future__ import annotations

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.sweep import Sweep
from autotune.tensor import DType


def repeat_dequantize(graph: Graph) -> Graph:
    """`y = dequantize(q); f(y), g(y)` --> `f(dequantize(q)), g(dequantize(q))`."""
    shared = {node.name for node in graph.nodes if _is_shared(graph, node)}
    if not shared:
        return graph
    sweep, seen = Sweep(graph), set(graph.output_values)
    for node in sweep:
        operands = []
        for name in node.inputs:
            if name in shared and name in seen:
                source = sweep.producers[name]
                operands.append(sweep.emit(source, source.op, source.inputs, **dict(source.attrs)))
            else:
                operands.append(name)
        seen.update(name for name in node.inputs if name in shared)
        if tuple(operands) == node.inputs:
            sweep.keep(node)
        else:
            sweep.replace(node, sweep.emit(node, node.op, operands, **dict(node.attrs)))
    return sweep.result()


def _is_shared(graph: Graph, node: Node) -> bool:
    if node.op != "dequantize" or DType(graph.values[node.inputs[0]].dtype).bytes > 1:
        return False
    return len(graph.consumers[node.name]) + (node.name in graph.output_values) > 1
