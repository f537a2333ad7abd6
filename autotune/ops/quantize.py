"""Real numbers as small integers: real = (integer - zero point) * scale; scales and zero points broadcast to the data.

Rounding is half to even, and what does not fit saturates (as every conversion from float to integer does here).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.broadcast import broadcast_shapes, element
from autotune.ops.checks import floating, numeric, require, word
from autotune.ops.registry import operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, cast, maximum, minimum, unary
from autotune.tensor.formats import decoded, encoded
from autotune.tensor.stage import Tensor, compute
from autotune.tensor.storage import INTEGER_BITS, integer_range

QUANTIZED = ("i8", "u8", "i16", "u16", "i4", "u4", "i2", "u2")
FLOATS = ("f32", "f16", "bf16", "f64")


@operator("quantize", elementwise=True, operands="data scale zero_point", traits="rounds", to="u8")
def quantize(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """saturate(round(data / scale) + zero_point); the quotient is rounded to the dtype of the scale first."""
    x, scale, zero = inputs
    numeric("quantize", x)
    floating("quantize", scale)
    to = _target("quantize", attrs, zero)

    def point(x: Expr, scale: Expr, zero: Expr) -> Expr:
        quotient = cast(scale.dtype, cast(DType.f32, cast(scale.dtype, x)) / cast(DType.f32, scale))
        return _saturated(to, unary("round", cast(DType.f32, quotient)) + _number(zero))

    def exact(x: Expr, scale: Expr, zero: Expr) -> Expr:
        return _saturated(to, unary("round", cast(DType.f64, x) / scale) + cast(DType.f64, _number(zero)))

    return _pointwise("quantize", inputs, exact if scale.dtype is DType.f64 else point)


@operator("requantize", elementwise=True, operands="data multiplier zero_point", traits="rounds", to="u8")
def requantize(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """saturate(round(data * multiplier) + zero_point): a sum in i32, whose scales are made into one, or f32."""
    x, multiplier, zero = inputs
    require(x.dtype in (DType.i32, DType.f32), f"requantize: the data is {x.dtype}, not a sum in i32 or f32")
    require(multiplier.dtype is DType.f32, f"requantize: the multiplier is {multiplier.dtype}, not f32")
    to = _target("requantize", attrs, zero)

    def point(x: Expr, multiplier: Expr, zero: Expr) -> Expr:
        return _saturated(to, unary("round", cast(DType.f32, x) * multiplier) + _number(zero))

    return _pointwise("requantize", inputs, point)


@operator("dequantize", elementwise=True, operands="data scale zero_point", to="f32")
def dequantize(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """(data - zero_point) * scale, computed in f32."""
    x, scale, zero = inputs
    fits = (x.dtype.is_int or x.dtype.is_storage) and x.dtype is zero.dtype
    require(fits, f"dequantize: data is {x.dtype}, zero point {zero.dtype}")
    floating("dequantize", scale)
    to = DType(word("dequantize", attrs, "to", FLOATS))

    def point(x: Expr, scale: Expr, zero: Expr) -> Expr:
        return cast(to, (_number(x) - _number(zero)) * cast(DType.f32, scale))

    return _pointwise("dequantize", inputs, point)


def _number(x: Expr) -> Expr:
    return decoded(x, DType.f32) if x.dtype.is_storage else cast(DType.f32, x)


def _saturated(to: DType, x: Expr) -> Expr:
    if to not in INTEGER_BITS:
        return cast(to, x)
    low, high = integer_range(to)
    return encoded(minimum(maximum(x, low), high), to)


def _target(op: str, attrs: Mapping[str, Any], zero: Tensor) -> DType:
    to = DType(word(op, attrs, "to", QUANTIZED))
    require(zero.dtype is to, f"{op}: the zero point is {zero.dtype}, the result {to}")
    return to


def _pointwise(op: str, inputs: Sequence[Tensor], fn: Any) -> Tensor:
    shape = inputs[0].shape
    whole = broadcast_shapes(op, [t.shape for t in inputs])
    require(whole == shape, f"{op}: scale and zero point of shape {whole} do not broadcast to data of shape {shape}")
    return compute(shape, lambda *i: fn(*(element(t, i, shape) for t in inputs)), name=op)
