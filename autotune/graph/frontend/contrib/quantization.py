"""Quantised operators beyond ONNX's own: sums, pools and joins of 8-bit tensors, products with real results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.contrib.channels_last import channels_first
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.frontend.quantization import (
    columns,
    dynamic_quantize_linear,
    matrix_product,
    requantized,
    rows,
)
from autotune.graph.frontend.reduction import along_axis
from autotune.graph.frontend.windows import read_window
from autotune.tensor import DType


@contributed("QLinearAdd", inputs=8)
def qlinear_add(node: OnnxNode) -> str:
    return _of_real_numbers(node, "add")


@contributed("QLinearMul", inputs=8)
def qlinear_mul(node: OnnxNode) -> str:
    return _of_real_numbers(node, "mul")


@contributed("MulInteger", inputs=4)
def mul_integer(node: OnnxNode) -> str:
    """The product of two 8-bit tensors, each less its zero point, in i32."""
    return node.emit("mul", *(_centred(node, position) for position in (0, 2)))


def _centred(node: OnnxNode, position: int) -> str:
    wide = node.converted(node.input(position), DType.i32)
    if not node.given(position + 1):
        return wide
    return node.emit("sub", wide, node.reshaped(node.converted(node.input(position + 1), DType.i32), ()))


@contributed("ReduceSumInteger", inputs=1)
def reduce_sum_integer(node: OnnxNode) -> str:
    """The sum of 8-bit integers in 32 bits."""
    to = DType.i32 if DType(node.value().dtype) is DType.i8 else DType.u32
    return _reduced(node, "reduce_sum", node.converted(node.input(0), to))


@contributed("QLinearReduceMean", inputs=5)
def qlinear_reduce_mean(node: OnnxNode) -> str:
    return _quantized(node, _reduced(node, "reduce_mean", _real(node, 0)), 3)


def _reduced(node: OnnxNode, op: str, value: str) -> str:
    """Over the attribute `axes`, all where it is empty."""
    axes = tuple(sorted(node.axis(axis, node.rank()) for axis in node.attr_ints("axes") or range(node.rank())))
    return node.emit(op, value, axes=axes, keepdims=node.attr_flag("keepdims", default=True))


@contributed("QLinearConcat", inputs=2**16)
def qlinear_concat(node: OnnxNode) -> str:
    """Tensors, each with its own scale and zero point, along an axis, with one scale and zero point."""
    count = len(node.inputs) - 2
    if count < 3 or count % 3:
        raise ModelError(f"{node.label}: {len(node.inputs)} inputs; a scale, a zero point, and three for each tensor")
    axis = node.axis(node.attr_int("axis", 0), node.rank(2))
    parts = []
    for position in range(2, len(node.inputs), 3):
        same = all(_equal(node, position + 1 + n, n) for n in (0, 1))
        parts.append(node.input(position) if same else _quantized(node, _real(node, position), 0))
    return node.emit("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]


@contributed("QLinearSigmoid", inputs=5)
def qlinear_sigmoid(node: OnnxNode) -> str:
    return _quantized(node, node.emit("sigmoid", _real(node, 0)), 3)


@contributed("QLinearLeakyRelu", inputs=5)
def qlinear_leaky_relu(node: OnnxNode) -> str:
    return _quantized(node, node.emit("leaky_relu", _real(node, 0), alpha=node.attr_float("alpha", 0.01)), 3)


@contributed("QLinearSoftmax", inputs=5)
def qlinear_softmax(node: OnnxNode) -> str:
    return _quantized(node, along_axis(node, "softmax", _real(node, 0), node.attr_int("opset", node.opset)), 3)


@contributed("QLinearWhere", inputs=9)
def qlinear_where(node: OnnxNode) -> str:
    return _quantized(node, node.emit("where", node.input(0), _real(node, 1), _real(node, 4)), 7)


@contributed("QLinearGlobalAveragePool", inputs=5)
def qlinear_global_average_pool(node: OnnxNode) -> str:
    first = 1 if node.attr_flag("channels_last") else 2
    axes = tuple(range(first, first + node.rank() - 2))
    return _quantized(node, node.emit("reduce_mean", _real(node, 0), axes=axes, keepdims=True), 3)


@contributed("QLinearAveragePool", inputs=5)
def qlinear_average_pool(node: OnnxNode) -> str:
    """Means of windows of (batch, channels, ...), or with `channels_last` of (batch, ..., channels)."""
    return channels_first(node, _average_pool, 0) if node.attr_flag("channels_last") else _average_pool(node)


def _average_pool(node: OnnxNode) -> str:
    window = read_window(node, node.attr_ints("kernel_shape") or ())
    value = node.emit(
        "avg_pool", _real(node, 0), kernel=window.kernel, stride=window.stride, pad=window.pad,
        dilation=window.dilation, ceil_mode=node.attr_flag("ceil_mode"),
        count_include_pad=node.attr_flag("count_include_pad"),
    )  # fmt: skip
    return _quantized(node, value, 3)


@contributed("QGemm", inputs=9)
def qgemm(node: OnnxNode) -> str:
    """alpha * scales * (A' @ B' + C), in i32 up to the end; real where no scale of the result is given."""
    alpha = node.attr_float("alpha", 1.0)
    trans_a, trans_b = node.attr_flag("transA"), node.attr_flag("transB")
    if node.rank(0) != 2 or node.rank(3) != 2:
        raise ModelError(f"{node.label}: operands {node.shape(0)} and {node.shape(3)} must be matrices")
    names = list(node.inputs)
    for position, turned in ((0, trans_a), (3, trans_b)):
        names[position] = node.transposed(node.input(position), (1, 0)) if turned else node.input(position)
    turned_node = replace(node, inputs=tuple(names))
    total = matrix_product(turned_node, 3, rows(turned_node, 2), columns(turned_node, 5))
    if node.given(6):
        total = node.emit("add", total, node.input(6))
    first, second = node.reshaped(node.input(1), ()), columns_scale(node, 4)
    if alpha != 1.0:
        first = node.emit("mul", first, node.scalar(alpha, first))
    if node.given(7):
        return requantized(node, total, first, second, 7)
    return _scaled(node, total, first, second)


@contributed("DynamicQuantizeMatMul", inputs=5)
def dynamic_quantize_matmul(node: OnnxNode) -> str:
    """A, quantised by its own range, times B; plus a bias."""
    quantised, scale, zero = dynamic_quantize_linear(node)
    operands = (quantised, node.input(1), zero, _given(node, 3))
    return _plus(node, real_product(node, operands, scale, columns_scale(node, 2)), 4)


@contributed("MatMulIntegerToFloat", inputs=7)
def matmul_integer_to_float(node: OnnxNode) -> str:
    operands = (node.input(0), node.input(1), _given(node, 4), _given(node, 5))
    return _plus(node, real_product(node, operands, node.reshaped(node.input(2), ()), columns_scale(node, 3)), 6)


def real_product(node: OnnxNode, operands: tuple[str | None, ...], first: str, second: str) -> str:
    """The product of (a, b, zero of a, zero of b), in integers, by the scales of a and of b or its columns."""
    inner = replace(node, inputs=operands)
    return _scaled(node, matrix_product(inner, 1, rows(inner, 2), columns(inner, 3)), first, second)


def _plus(node: OnnxNode, name: str, position: int) -> str:
    return node.emit("add", name, node.input(position)) if node.given(position) else name


def columns_scale(node: OnnxNode, position: int) -> str:
    scale = columns(node, position)
    assert scale is not None  # the scale is no optional input
    return scale


def _scaled(node: OnnxNode, total: str, first: str, second: str) -> str:
    """An i32 sum as a real number."""
    return node.emit("mul", node.converted(total, DType.f32), node.emit("mul", first, second))


def _given(node: OnnxNode, position: int) -> str | None:
    return node.input(position) if node.given(position) else None


def _of_real_numbers(node: OnnxNode, op: str) -> str:
    return _quantized(node, node.emit(op, _real(node, 0), _real(node, 3)), 6)


def _real(node: OnnxNode, position: int) -> str:
    """The real numbers of the 8-bit tensor at a position, whose scale and zero point come behind it."""
    dtype = node.value(position).dtype
    return node.emit(
        "dequantize", node.input(position), node.reshaped(node.input(position + 1), ()),
        _zero(node, position + 2, DType(dtype)), to="f32",
    )  # fmt: skip


def _quantized(node: OnnxNode, value: str, position: int) -> str:
    """Real numbers by the scale at a position and the zero point behind it."""
    dtype = DType(node.value(position + 1).dtype if node.given(position + 1) else node.value(0).dtype)
    scale = node.reshaped(node.input(position), ())
    return node.emit("quantize", value, scale, _zero(node, position + 1, dtype), to=dtype.value)


def _zero(node: OnnxNode, position: int, dtype: DType) -> str:
    if node.given(position):
        return node.reshaped(node.input(position), ())
    return node.new_constant(np.zeros((), dtype.numpy))


def _equal(node: OnnxNode, one: int, other: int) -> bool:
    """Whether two inputs are known to be the same."""
    known = node.is_constant(one) and node.is_constant(other)
    return known and np.array_equal(node.constant(one, "a scale").reshape(-1), node.constant(other, "it").reshape(-1))
