"""Signed bytes become unsigned ones, 128 higher, where all that reads them knows their zero point."""

from __future__ import annotations

import numpy as np

from autotune.graph.integer_product import SHIFT
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.sweep import Sweep


def make_unsigned(graph: Graph) -> Graph:
    """`dequantize(quantize(x, s, z: i8), t, z)` --> `dequantize(quantize(x, s, z + 128: u8), t, z + 128)`."""
    sweep = Sweep(graph)
    risen: set[str] = set()
    for node in sweep:
        if _rises(graph, node):
            made = sweep.emit(node, node.op, (*node.inputs[:2], _risen(sweep, node.inputs[2])), to="u8")
            risen.add(made)
            sweep.replace(node, made)
        elif node.op == "dequantize" and node.inputs[0] in risen:
            operands = (*node.inputs[:2], _risen(sweep, node.inputs[2]))
            sweep.replace(node, sweep.emit(node, node.op, operands, **dict(node.attrs)))
        elif node.op in ("bit_cast", "bitwise_xor") and node.inputs[0] in risen:
            sweep.replace(node, node.inputs[0])
        else:
            sweep.keep(node)
    return sweep.result()


def _rises(graph: Graph, node: Node) -> bool:
    """Whether a node makes signed bytes, and all that reads them knows what stands for 0, or moves them up itself."""
    if node.op not in ("quantize", "requantize") or node.output.dtype != "i8" or node.name in graph.output_values:
        return False
    readers = graph.consumers[node.name]
    named = all(reader.inputs[2] in graph.constants for reader in (node, *readers) if len(reader.inputs) == 3)
    return bool(readers) and named and all(r.op == "dequantize" or _moves_up(graph, r) for r in readers)


def _moves_up(graph: Graph, node: Node) -> bool:
    """Whether a node reads signed bytes as unsigned ones, and nothing but what flips their highest bit reads those."""
    if node.op != "bit_cast" or node.output.dtype != "u8" or node.name in graph.output_values:
        return False
    flips = [graph.constants.get(reader.inputs[1]) if reader.op == "bitwise_xor" else None
             for reader in graph.consumers[node.name]]  # fmt: skip
    return bool(flips) and all(flip is not None and flip.size == 1 and flip.item() == SHIFT for flip in flips)


def _risen(sweep: Sweep, zero: str) -> str:
    array = sweep.array(zero)
    assert array is not None  # `_rises` looked
    return sweep.constant((array.astype(np.int32) + SHIFT).astype(np.uint8), zero)
