"""Gemm and MatMul. Constant right-hand sides are stored as (K, N): a transposed view, never a copy."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts


@converts("Gemm")
def gemm(node: OnnxNode) -> str:
    """alpha * A' @ B' + beta * C, with the factors folded into constants where there are any."""
    if node.rank(0) != 2 or node.rank(1) != 2:
        raise ModelError(f"{node.label}: operands {node.shape(0)} and {node.shape(1)} must be matrices")
    alpha, beta = node.attr_float("alpha", 1.0), node.attr_float("beta", 1.0)
    trans_a, trans_b = node.attr_flag("transA"), node.attr_flag("transB")
    b = node.input(1)
    if node.is_constant(1):
        array = node.constant(1, "weight")
        if alpha != 1.0 and array.dtype.kind == "f":
            array, alpha = (array.astype(np.float64) * alpha).astype(array.dtype), 1.0
        if trans_b:
            array, trans_b = array.T, False
        if array is not node.constant(1, "weight"):
            b = node.new_constant(array)
    result = node.emit("matmul", node.input(0), b, trans_a=trans_a, trans_b=trans_b)
    if alpha != 1.0:
        result = node.emit("mul", result, node.scalar(alpha, result))
    if not node.given(2):
        return result
    _check_addend(node, result)
    if beta == 0.0:
        return result
    return node.emit("add", result, _scaled(node, beta))


def _check_addend(node: OnnxNode, product: str) -> None:
    """C broadcasts to the product; before opset 7 only where the attribute `broadcast` says so."""
    shape, c = node.builder.values[product].shape, node.shape(2)
    free = node.opset >= 7 or node.attr_flag("broadcast")
    fits = len(c) <= 2 and all(own in (1, extent) for own, extent in zip(reversed(c), reversed(shape), strict=False))
    if not fits or not (free or c == shape):
        raise ModelError(f"{node.label}: C of shape {c} does not fit the product of shape {shape}")


def _scaled(node: OnnxNode, beta: float) -> str:
    c = node.input(2)
    if beta == 1.0:
        return c
    if node.is_constant(2):
        array = node.constant(2, "C")
        return node.new_constant((array.astype(np.float64) * beta).astype(array.dtype))
    return node.emit("mul", c, node.scalar(beta, c))


@converts("MatMul")
def matmul(node: OnnxNode) -> str:
    return product(node, node.input(0), node.input(1))


def product(node: OnnxNode, a: str, b: str) -> str:
    """NumPy matmul; vectors become matrices for the product and lose the extra dimension after it."""
    shape_a, shape_b = node.builder.values[a].shape, node.builder.values[b].shape
    if not shape_a or not shape_b:
        raise ModelError(f"{node.label}: a matrix product takes no scalars")
    if len(shape_a) == 1:
        a = node.reshaped(a, (1, *shape_a))
    if len(shape_b) == 1:
        b = node.reshaped(b, (*shape_b, 1))
    result = node.emit("matmul", a, b, trans_a=False, trans_b=False)
    shape = node.builder.values[result].shape
    if len(shape_b) == 1:
        shape = shape[:-1]
    if len(shape_a) == 1:
        shape = (*shape[:-2], shape[-1]) if len(shape_b) > 1 else shape[:-1]
    return node.reshaped(result, shape)
