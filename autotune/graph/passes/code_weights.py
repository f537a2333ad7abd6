"""Weights that a product dequantises stay codes: `x @ dequantize(w)` decodes them in registers.

requires: products and dequantised constants as the frontend writes them, before constants are folded.
ensures: no matrix product of real numbers has a right operand that is dequantised from 2, 4 or 8 bits with scales per
column, or per column and block of the sum, unless its left operand is dequantised, too.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.coded import coded_weight
from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.coded import BYTES, WORDS


def code_weights(graph: Graph) -> Graph:
    """Weight-only quantised products as `matmul_coded`."""
    return rewrite(graph, _coded, ("matmul",))


def _coded(sweep: Sweep, node: Node) -> str | None:
    a, b = node.inputs
    shape = sweep.values[a].shape
    turned = bool(node.attr("trans_b"))
    transpose = made_by(sweep, b, "transpose")
    if transpose is not None and transpose.int_tuple("perm") == (1, 0):
        b, turned = transpose.inputs[0], not turned
    real = made_by(sweep, b, "dequantize")
    if real is None or node.attr("trans_a") or _is_dequantized(sweep, a) or len(shape) < 2:
        return None
    data, form = sweep.array(real.inputs[0]), sweep.values[real.inputs[0]].dtype
    if data is None or data.ndim != 2 or form not in (*WORDS, *BYTES):
        return None
    along = 1 if turned else 0
    scale, zero = (_per_block(sweep, name, data.shape, along) for name in real.inputs[1:])
    if scale is None or zero is None:
        return None
    block, rows = min(scale[1], zero[1]), (scale[0], zero[0])
    count = max(len(r) for r in rows)
    if any(len(r) not in (1, count) for r in rows):
        return None
    wide = [np.broadcast_to(r, (count, data.shape[1 - along])) for r in rows]
    numbers = data.T if turned else data
    if form == "f4e2m1":
        numbers = numbers.view(np.uint8)
    made = coded_weight(numbers, form, wide[0], wide[1], block)
    if made is None:
        return None
    matrix = a if len(shape) == 2 else sweep.emit(node, "reshape", (a,), shape=(math.prod(shape[:-1]), shape[-1]))
    constants = [x for x in (made.codes, made.scale, made.zero) if x is not None]
    operands = [sweep.constant(np.ascontiguousarray(x), real.name) for x in constants]
    result = sweep.emit(node, "matmul_coded", (matrix, *operands), block=made.block, format=made.form)
    if sweep.values[result].dtype != node.output.dtype:
        return None
    return result if len(shape) == 2 else sweep.emit(node, "reshape", (result,), shape=node.output.shape)


def _is_dequantized(sweep: Sweep, name: str) -> bool:
    """A product of two quantised operands is one of integers."""
    producer = sweep.producers.get(name)
    while producer is not None and producer.op in ("reshape", "transpose", "slice", "concat"):
        producer = sweep.producers.get(producer.inputs[0])
    return producer is not None and producer.op == "dequantize"


def _per_block(sweep: Sweep, name: str, shape: tuple[int, ...], along: int) -> tuple[Array, int] | None:
    """((blocks or 1, columns or 1) values, elements of a block) of a scale or zero point that broadcasts to `shape`."""
    block = shape[along]
    gather = made_by(sweep, name, "gather")
    if gather is not None:
        values, places = (sweep.array(x) for x in gather.inputs)
        if values is None or places is None or gather.attr("axis") != along or places.shape != (shape[along],):
            return None
        block = int(np.count_nonzero(places == 0))
        if not block or not np.array_equal(places, np.arange(shape[along]) // block):
            return None
    else:
        found = sweep.array(name)
        if found is None:
            return None
        values = found.reshape((1,) * (2 - found.ndim) + found.shape)
        if values.shape[along] != 1:
            return None
    values = values.T if along else values
    fits = values.ndim == 2 and values.shape[1] in (1, shape[1 - along])
    return (values, block) if fits else None
