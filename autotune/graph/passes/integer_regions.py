"""Quantised graphs become graphs of integers: products of bytes with sums in i32, bytes between kernels.

requires: the `dequantize` of constant weights are still there: it comes before fold-constants.
ensures: no convolution or matrix product reads dequantised bytes and weights that it could multiply as integers; what
moves bytes, or keeps their order, reads no dequantised ones; nothing is dequantised and quantised again on one grid.

A graph with QuantizeLinear and DequantizeLinear says which real numbers it means. Integers are those numbers: results
differ by one only where the number before rounding lies at a tie within f32's error.
"""

from __future__ import annotations

from autotune.graph.ir import Graph
from autotune.graph.passes.dead_code import remove_dead_code
from autotune.graph.passes.fold_constants import fold_constants
from autotune.graph.passes.integer.movement import moved, quantized_before
from autotune.graph.passes.integer.products import PRODUCTS, integer_product
from autotune.graph.passes.integer.rounding import biased, requantized
from autotune.graph.passes.integer.signed import made_signed
from autotune.graph.passes.integer.tables import tabulate
from autotune.graph.passes.integer.unsigned import make_unsigned
from autotune.graph.passes.sweep import rewrite

MAX_ROUNDS = 100  # a rule moves a node past another one, so a chain takes a round for each of its nodes


def integer_regions(graph: Graph) -> Graph:
    """`quantize(conv2d(dequantize(x), dequantize(w)) + b)` --> `requantize(conv2d(x, w) + b')`."""
    if not any(node.op == "dequantize" for node in graph.nodes):
        return graph
    for _ in range(MAX_ROUNDS):
        before = graph
        graph = remove_dead_code(graph)
        graph = fold_constants(graph, later={"dequantize", "gather"})  # scales of blocks are gathered
        graph = make_unsigned(graph)
        graph = rewrite(graph, moved)
        graph = rewrite(graph, quantized_before, {"quantize"})
        graph = rewrite(graph, integer_product, PRODUCTS)
        graph = rewrite(graph, biased, {"add"})
        graph = rewrite(graph, requantized, {"quantize"})
        graph = tabulate(graph)
        graph = rewrite(graph, made_signed, {"bit_cast"})
        if graph is before:
            break
    return graph
