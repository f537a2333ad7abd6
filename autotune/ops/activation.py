"""Activations: elementwise functions of one tensor, some with a second operand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import floating, number, numeric, require, same_dtype, word
from autotune.ops.elementwise import pointwise
from autotune.ops.registry import operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, const, maximum, minimum, select, unary
from autotune.tensor.stage import Tensor


@operator("relu", elementwise=True)
def relu(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """max(x, 0); NaN stays NaN."""
    numeric("relu", inputs[0])
    return pointwise("relu", inputs, lambda x: maximum(x, 0))


@operator("clip", elementwise=True, min=-math.inf, max=math.inf)
def clip(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """min(max(x, lower), upper): `max` wins when the bounds cross, and NaN stays NaN."""
    dtype = numeric("clip", inputs[0])
    low, high = number("clip", attrs, "min"), number("clip", attrs, "max")
    require(not math.isnan(low) and not math.isnan(high), "clip: a bound is NaN")

    def body(x: Expr) -> Expr:
        bounded = x if low == -math.inf else maximum(x, const(low, dtype))
        return bounded if high == math.inf else minimum(bounded, const(high, dtype))

    return pointwise("clip", inputs, body)


@operator("leaky_relu", elementwise=True, alpha=0.01)
def leaky_relu(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x where x >= 0, else alpha x."""
    floating("leaky_relu", inputs[0])
    alpha = number("leaky_relu", attrs, "alpha")
    return pointwise("leaky_relu", inputs, lambda x: select(x < 0.0, x * alpha, x))


@operator("prelu", elementwise=True, operands="data slope", weights="slope")
def prelu(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x where x >= 0, else slope x."""
    numeric("prelu", inputs[0])
    same_dtype("prelu", inputs)
    return pointwise("prelu", inputs, lambda x, slope: select(x < 0, x * slope, x))


@operator("thresholded_relu", elementwise=True, alpha=1.0)
def thresholded_relu(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x where x > alpha, else 0."""
    floating("thresholded_relu", inputs[0])
    alpha = number("thresholded_relu", attrs, "alpha")
    return pointwise("thresholded_relu", inputs, lambda x: select(x > alpha, x, 0.0))


@operator("shrink", elementwise=True, lambd=0.5, bias=0.0)
def shrink(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x + bias below -lambd, x - bias above lambd, else 0. Integers are compared and moved as real numbers."""
    dtype = numeric("shrink", inputs[0])
    lambd, bias = number("shrink", attrs, "lambd"), number("shrink", attrs, "bias")
    real = dtype if dtype.is_float else DType.f64

    def body(x: Expr) -> Expr:
        value = cast(real, x)
        return cast(dtype, select(value < -lambd, value + bias, select(value > lambd, value - bias, 0.0)))

    return pointwise("shrink", inputs, body)


@operator("elu", elementwise=True, alpha=1.0)
def elu(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x where x >= 0, else alpha (exp(x) - 1)."""
    floating("elu", inputs[0])
    alpha = number("elu", attrs, "alpha")
    return pointwise("elu", inputs, lambda x: select(x < 0.0, (unary("exp", x) - 1.0) * alpha, x))


@operator("celu", elementwise=True, alpha=1.0)
def celu(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x where x >= 0, else alpha (exp(x / alpha) - 1)."""
    floating("celu", inputs[0])
    alpha = number("celu", attrs, "alpha")
    require(alpha != 0, "celu: alpha=0 divides by zero")
    return pointwise("celu", inputs, lambda x: select(x < 0.0, (unary("exp", x * (1 / alpha)) - 1.0) * alpha, x))


@operator("hard_sigmoid", elementwise=True, alpha=0.2, beta=0.5)
def hard_sigmoid(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """max(0, min(1, alpha x + beta))."""
    floating("hard_sigmoid", inputs[0])
    alpha, beta = number("hard_sigmoid", attrs, "alpha"), number("hard_sigmoid", attrs, "beta")
    return pointwise("hard_sigmoid", inputs, lambda x: maximum(minimum(x * alpha + beta, 1.0), 0.0))


@operator("hard_swish", elementwise=True)
def hard_swish(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x max(0, min(1, x / 6 + 1 / 2))."""
    floating("hard_swish", inputs[0])
    return pointwise("hard_swish", inputs, lambda x: x * maximum(minimum(x * (1 / 6) + 0.5, 1.0), 0.0))


@operator("sigmoid", elementwise=True)
def sigmoid(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """1 / (1 + exp(-x))."""
    floating("sigmoid", inputs[0])
    return pointwise("sigmoid", inputs, lambda x: unary("sigmoid", x))


@operator("swish", elementwise=True, alpha=1.0)
def swish(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x sigmoid(alpha x); SiLU when alpha is 1."""
    floating("swish", inputs[0])
    alpha = number("swish", attrs, "alpha")
    return pointwise("swish", inputs, lambda x: _gated(x, x, alpha))


def _gated(x: Expr, gate: Expr, factor: float = 1.0) -> Expr:
    """x sigmoid(factor gate). As a quotient by a power of two it is half the work of the sigmoid on its own.

    Where the power is far from 1, its relative error grows with the gate, but not the result's against x.
    """
    return x / (unary("exp2", gate * (-factor * math.log2(math.e))) + 1.0)


@operator("softplus", elementwise=True)
def softplus(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))."""
    floating("softplus", inputs[0])

    def body(x: Expr) -> Expr:
        power = unary("exp", -unary("abs", x))
        total = 1.0 + power
        # The rounding of 1 + power is undone to first order: log1p(p) = log(t) p / (t - 1).
        small = binary("eq", total, 1.0)
        correction = select(small, 1.0, power) / select(small, 1.0, total - 1.0)
        return maximum(x, 0.0) + select(small, power, unary("log", total) * correction)

    return pointwise("softplus", inputs, body)


@operator("mish", elementwise=True)
def mish(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x tanh(softplus(x)) = x n / (n + 2), where n = e (e + 2) and e = exp(x)."""
    floating("mish", inputs[0])

    def body(x: Expr) -> Expr:
        power = unary("exp", minimum(x, 20.0))  # beyond, the quotient is 1 in every dtype
        n = power * (power + 2.0)
        return x * (n / (n + 2.0))

    return pointwise("mish", inputs, body)


@operator("gelu", elementwise=True, approximate="none")
def gelu(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """0.5 x (1 + erf(x / sqrt 2)), or its tanh approximation."""
    floating("gelu", inputs[0])
    if word("gelu", attrs, "approximate", ("none", "tanh")) == "none":
        return pointwise("gelu", inputs, lambda x: unary("gelu", x))
    scale = math.sqrt(8 / math.pi)  # (1 + tanh(z)) / 2 is sigmoid(2 z)
    return pointwise("gelu", inputs, lambda x: _gated(x, x * (x * x * (0.044715 * scale) + scale)))
