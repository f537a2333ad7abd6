"""QuantizeLinear and its kin, and products of quantised operands as integer products with exact i32 sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.errors import ModelError
from autotune.graph import integer_product
from autotune.graph.frontend.convolution import convolution_attributes, convolution_window
from autotune.graph.frontend.matrix import product
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.source import dtype_of
from autotune.graph.integer_product import Operand
from autotune.graph.ir import Array, Value
from autotune.ops.workload import AttrValue
from autotune.tensor import DType
from autotune.tensor.storage import INTEGER_BITS


@converts("QuantizeLinear")
def quantize_linear(node: OnnxNode) -> str:
    x, scale = node.input(0), node.input(1)
    given = dtype_of(node.attr_int("output_dtype", 0) or 2, node.label)  # 2 is uint8
    to = DType(node.value(2).dtype) if node.given(2) else given
    if node.attr_int("output_dtype", 0) and to is not given:
        raise ModelError(f"{node.label}: output_dtype is {given}, the zero point {to}")
    zero = _spread(node, node.input(2)) if node.given(2) else node.new_constant(np.zeros((), to.numpy))
    saturate = bool(node.attr_int("saturate", 1))  # about 8-bit floats
    precision = node.attr_int("precision", 0)
    if precision:
        scale = _cast(node, scale, dtype_of(precision, node.label))
    elif not DType(node.value(1).dtype).is_float:
        scale = _cast(node, scale, DType.f32)
    if to.is_storage and to not in INTEGER_BITS:
        quotient = node.emit("div", _cast(node, x, DType(node.builder.values[scale].dtype)), _spread(node, scale))
        if node.given(2):
            quotient = node.emit("add", quotient, _cast(node, zero, DType(node.builder.values[quotient].dtype)))
        return node.emit("encode", quotient, to=to.value, saturate=saturate, rounding="up")
    return node.emit("quantize", x, _spread(node, scale), zero, to=to.value)


@converts("DequantizeLinear")
def dequantize_linear(node: OnnxNode) -> str:
    x, wanted = node.value(), node.attr_int("output_dtype", 0)
    zero = _spread(node, node.input(2)) if node.given(2) else node.new_constant(np.zeros((), DType(x.dtype).numpy))
    to = dtype_of(wanted, node.label).value if wanted else node.value(1).dtype
    return node.emit("dequantize", x.name, _spread(node, node.input(1)), zero, to=to)


def _spread(node: OnnxNode, name: str) -> str:
    """A scale or zero point so that it broadcasts to the data: per tensor, per axis or per block of an axis."""
    data, shape = node.shape(), node.builder.values[name].shape
    axis, block = node.attr_int("axis", 1), node.attr_int("block_size", 0)
    if shape in ((), (1,)) and not block:
        return node.reshaped(name, ())
    axis = node.axis(axis, len(data))
    if len(shape) == 1 and not block:
        if shape[0] != data[axis]:
            raise ModelError(f"{node.label}: {shape[0]} scales for axis {axis} of data of shape {data}")
        return node.reshaped(name, tuple(shape[0] if d == axis else 1 for d in range(len(data))))
    blocks = -(-data[axis] // block) if block > 0 else -1
    if shape != tuple(blocks if d == axis else extent for d, extent in enumerate(data)):
        where = f"blocks of {block} along axis {axis} of data of shape {data}"
        raise ModelError(f"{node.label}: scale or zero point of shape {shape} does not fit {where}")
    return node.emit("gather", name, node.new_constant(np.arange(data[axis]) // block), axis=axis)


@converts("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: OnnxNode) -> tuple[str, str, str]:
    """(quantised data, scale, zero point) for the range of the data, which is made to include 0."""
    x = node.input(0)
    flat = node.reshaped(x, (int(np.prod(node.shape())),))
    zero = node.scalar(0.0, x)
    high = node.emit("max", node.emit("reduce_max", flat, axes=(0,), keepdims=False), zero)
    low = node.emit("min", node.emit("reduce_min", flat, axes=(0,), keepdims=False), zero)
    scale = node.emit("div", node.emit("sub", high, low), node.scalar(255.0, x))
    none = node.new_constant(np.zeros((), np.uint8))
    zero_point = node.emit("quantize", node.emit("sub", zero, low), scale, none, to="u8")
    return node.emit("quantize", x, scale, zero_point, to="u8"), scale, zero_point


@converts("MatMulInteger")
def matmul_integer(node: OnnxNode) -> str:
    return matrix_product(node, 1, rows(node, 2), columns(node, 3))


@converts("QLinearMatMul")
def qlinear_matmul(node: OnnxNode) -> str:
    total = matrix_product(node, 3, rows(node, 2), columns(node, 5))
    return requantized(node, total, rows(node, 1), columns(node, 4), 6)


@converts("ConvInteger")
def conv_integer(node: OnnxNode) -> str:
    return _convolution(node, 1, _scalar(node, 2), _filters(node, 3, 1), None)


@converts("QLinearConv")
def qlinear_conv(node: OnnxNode) -> str:
    channels, count = (1, -1, *(1,) * (node.rank() - 2)), node.shape(3)[0]
    bias = _along(node, 8, channels, count) if node.given(8) else None
    total = _convolution(node, 3, _scalar(node, 2), _filters(node, 5, 3), bias)
    return requantized(node, total, _scalar(node, 1), _along(node, 4, channels, count), 6)


def matrix_product(node: OnnxNode, weight: int, zero: str | None, weight_zero: str | None) -> str:
    """The i32 product of the first operand and the one at `weight`, each less its zero point."""
    write = Writing(node)
    a, b = Operand(node.input(0), zero), Operand(node.input(weight), weight_zero)
    if min(node.rank(), node.rank(weight)) < 2:
        return product(node, integer_product.centred(write, a), integer_product.centred(write, b))
    return integer_product.matrix_product(write, a, b)


def _convolution(node: OnnxNode, weight: int, zero: str | None, weight_zero: str | None, bias: str | None) -> str:
    """The i32 convolution of the same, plus a bias."""
    window = convolution_window(node, weight)
    x, filters = Operand(node.input(0), zero), Operand(node.input(weight), weight_zero)
    op, attrs = f"conv{len(window.kernel)}d", convolution_attributes(node, window)
    return integer_product.convolution(Writing(node), op, x, filters, attrs, bias)


@dataclass(frozen=True, slots=True)
class Writing:
    """A converter as where products of quantised operands are written."""

    node: OnnxNode

    def emit(self, op: str, *inputs: str, **attrs: AttrValue) -> str:
        return self.node.emit(op, *inputs, **attrs)

    def constant(self, array: Array) -> str:
        return self.node.new_constant(array)

    def array(self, name: str) -> Array | None:
        return self.node.builder.constants.get(name)

    def value(self, name: str) -> Value:
        return self.node.builder.values[name]


def requantized(node: OnnxNode, total: str, first: str | None, second: str | None, position: int) -> str:
    """An i32 sum by its operands' scales and the result's scale and zero point, which are at `position`."""
    assert first is not None and second is not None
    zero = node.input(position + 1)
    scale = _cast(node, node.reshaped(node.input(position), ()), DType.f32)
    factor = node.emit("mul", _cast(node, first, DType.f32), _cast(node, second, DType.f32))
    return node.emit(
        "requantize", total, node.emit("div", factor, scale), node.reshaped(zero, ()),
        to=node.builder.values[zero].dtype,
    )  # fmt: skip


def _cast(node: OnnxNode, name: str, to: DType) -> str:
    return name if node.builder.values[name].dtype == to.value else node.emit("cast", name, to=to.value)


def _scalar(node: OnnxNode, position: int) -> str | None:
    """One number, None where the input is left out."""
    if not node.given(position):
        return None
    if node.shape(position) not in ((), (1,)):
        raise ModelError(f"{node.label}: input {position} must be one number, not of shape {node.shape(position)}")
    return node.reshaped(node.input(position), ())


def _along(node: OnnxNode, position: int, shape: tuple[int, ...], extent: int) -> str:
    """One number, or `extent` of them in `shape` (with -1 where they go)."""
    given = node.shape(position)
    if given in ((), (1,)):
        return node.reshaped(node.input(position), ())
    if given != (extent,):
        raise ModelError(f"{node.label}: input {position} has shape {given}, one number or {extent} are needed")
    return node.reshaped(node.input(position), tuple(extent if d == -1 else d for d in shape))


def _filters(node: OnnxNode, position: int, weight: int) -> str | None:
    """The zero point of a convolution's weight: one, or one per filter."""
    shape = node.shape(weight)
    return _along(node, position, (-1, *(1,) * (len(shape) - 1)), shape[0]) if node.given(position) else None


def rows(node: OnnxNode, position: int) -> str | None:
    """A scale or zero point of a matrix product's first operand: one, one per row, or of the operand's rank."""
    if not node.given(position):
        return None
    shape = node.shape(position)
    if shape in ((), (1,)):
        return node.reshaped(node.input(position), ())
    return node.reshaped(node.input(position), (*shape, 1)) if len(shape) == 1 else node.input(position)


def columns(node: OnnxNode, position: int) -> str | None:
    """The same of the second operand, per column."""
    if not node.given(position):
        return None
    return node.reshaped(node.input(position), ()) if node.shape(position) == (1,) else node.input(position)
