"""Convolutions and matrix products of dequantised bytes become integer products.

    conv2d(dequantize(x, s, z), dequantize(w, t, v)) --> dequantize(conv2d(x, w - v) - z * sum(w - v), s * t, 0)

All but the scales is exact in i32, which no sum may leave: products that could are left in f32.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.integer_product import Operand, convolution, matrix_product
from autotune.graph.ir import Array, Node
from autotune.graph.passes.integer.values import BYTES, Dequantized, dequantized, is_normal, plain
from autotune.graph.passes.integer.writing import Rewriting
from autotune.graph.passes.sweep import Sweep
from autotune.ops.conv import CONVOLUTIONS

PRODUCTS = frozenset({*CONVOLUTIONS, "matmul"})
MOST = 2**30 - 1
"""Of a sum: a bias may add as much again."""


def integer_product(sweep: Sweep, node: Node) -> str | None:
    """The product as a sum in i32, and what makes it real."""
    if node.op == "matmul" and (made := _of_two_values(sweep, node)) is not None:
        return made
    x, weight = plain(sweep, node.inputs[0]), dequantized(sweep, node.inputs[1])
    if x is None or weight is None or weight.grid.dtype.value not in BYTES or node.output.dtype != "f32":
        return None
    turned = _as_matrices(sweep, node, weight) if node.op == "matmul" else weight
    found = None if turned is None else _factor(node, x, turned)
    write = Rewriting(sweep, node)
    if turned is None or found is None or not _fits(write, node, turned):
        return None
    data = Operand(x.value, x.node.inputs[2])
    filters = Operand(turned.value, write.constant(turned.grid.zero))
    if node.op == "matmul":
        total = matrix_product(write, data, filters)
    else:
        total = convolution(write, node.op, data, filters, dict(node.attrs))
    none = write.constant(np.zeros((), np.int32))
    return write.emit("dequantize", total, write.constant(found), none, to="f32")


def _of_two_values(sweep: Sweep, node: Node) -> str | None:
    """The same of a matrix product whose operands are both known at run time only."""
    a, b = (plain(sweep, name) for name in node.inputs)
    if a is None or b is None or any(sweep.array(operand.value) is not None for operand in (a, b)):
        return None
    shapes = [sweep.values[operand.value].shape for operand in (a, b)]
    scale = np.asarray(a.grid.scale.astype(np.float64) * b.grid.step).reshape(())
    turned = node.attr("trans_a") or node.attr("trans_b")
    if turned or min(map(len, shapes)) < 2 or shapes[0][-1] > MOST // 255**2 or not is_normal(scale):
        return None
    write = Rewriting(sweep, node)
    first, second = (Operand(operand.value, operand.node.inputs[2]) for operand in (a, b))
    parameters = (write.constant(scale.astype(np.float32)), write.constant(np.zeros((), np.int32)))
    return write.emit("dequantize", matrix_product(write, first, second), *parameters, to="f32")


def _as_matrices(sweep: Sweep, node: Node, weight: Dequantized) -> Dequantized | None:
    """The constant weight of a matrix product as (..., K, N); None where it is none, or the data is turned."""
    array, rank = sweep.array(weight.value), len(sweep.values[weight.value].shape)
    if array is None or rank < 2 or len(sweep.values[node.inputs[0]].shape) < 2 or node.attr("trans_a"):
        return None
    if not node.attr("trans_b"):
        return weight
    grid = weight.grid
    scale, zero = (a.swapaxes(-1, -2) if a.ndim == rank else a for a in (grid.scale, grid.zero))
    if any(a.ndim not in (0, rank) for a in (grid.scale, grid.zero)):
        return None
    turned = sweep.constant(array.swapaxes(-1, -2), weight.value)
    return Dequantized(turned, type(grid)(grid.dtype, scale, zero), weight.node)


def _factor(node: Node, x: Dequantized, weight: Dequantized) -> Array | None:
    """The scale of the product, which broadcasts to it; None where it differs among the terms of a sum."""
    scale = weight.grid.scale.astype(np.float64) * x.grid.step
    if not is_normal(scale):
        return None
    rank = len(node.output.shape)
    if scale.size == 1:
        return scale.astype(np.float32).reshape(())
    if node.op == "matmul":
        per_term = scale.ndim >= 2 and scale.shape[-2] != 1
        return None if per_term or scale.ndim > rank else scale.astype(np.float32)
    if scale.ndim != rank or scale.size != scale.shape[0]:
        return None
    return scale.astype(np.float32).reshape(1, -1, *(1,) * (rank - 2))


def _fits(write: Rewriting, node: Node, weight: Dequantized) -> bool:
    """Whether the weight is constant and no sum leaves i32, whatever the data is."""
    array = write.array(weight.value)
    if array is None:
        return False
    wide = np.abs(array.astype(np.int64) - weight.grid.zero.astype(np.int64))
    axes = (-2,) if node.op == "matmul" else tuple(range(1, wide.ndim))
    return int(wide.sum(axis=axes).max(initial=0)) * 255 <= MOST
