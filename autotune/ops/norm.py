"""Normalisation: local response, and over the last axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.broadcast import broadcast_shapes, element
from autotune.ops.checks import axis_of, floating, integer, number, require, same_dtype
from autotune.ops.precision import sum_dtype
from autotune.ops.reduce import fold_axes
from autotune.ops.registry import operator
from autotune.tensor.expr import Expr, binary, cast, read, unary
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_


@operator("lrn", size=5, alpha=1e-4, beta=0.75, bias=1.0)
def lrn(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x / (bias + alpha/size * sum of squares over `size` neighbouring channels) ** beta."""
    (x,) = inputs
    floating("lrn", x)
    require(len(x.shape) >= 2, f"lrn: data needs a channel dimension, got shape {x.shape}")
    size = integer("lrn", attrs, "size", 1)
    alpha, beta, bias = (number("lrn", attrs, a) for a in ("alpha", "beta", "bias"))
    total = sum_dtype(x.dtype)
    j = reduce_axis(size, "j")

    def square(*i: Expr) -> Reduction:
        channel = i[1] + j.var - (size - 1) // 2
        inside = (channel >= 0) & (channel < x.shape[1])
        value = cast(total, read(x, (i[0], channel, *i[2:]), when=inside if size > 1 else None))
        return sum_(value * value, j)

    squares = compute(x.shape, square, "lrn_sum")
    return compute(
        x.shape, lambda *i: cast(x.dtype, cast(total, x[i]) / _power(squares[i] * (alpha / size) + bias, beta)), "lrn"
    )


def _power(base: Expr, exponent: float) -> Expr:
    """base ** exponent; the exponents that people use need no logarithm."""
    root = unary("sqrt", base)
    known = {1.0: base, 0.5: root, 0.75: root * unary("sqrt", root)}
    return known[exponent] if exponent in known else binary("pow", base, exponent)


@operator("layer_norm", operands="data scale bias", weights="scale bias", axis=-1, epsilon=1e-5)
def layer_norm(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over all axes from `axis` on."""
    x, scale, bias = inputs
    floating("layer_norm", x)
    same_dtype("layer_norm", inputs)
    axis = axis_of("layer_norm", integer("layer_norm", attrs, "axis"), len(x.shape))
    epsilon = number("layer_norm", attrs, "epsilon")
    for t, name in ((scale, "scale"), (bias, "bias")):
        fits = broadcast_shapes("layer_norm", (t.shape, x.shape)) == x.shape
        require(fits, f"layer_norm: {name} of shape {t.shape} does not broadcast to {x.shape}")
    axes = range(axis, len(x.shape))
    count = math.prod(x.shape[axis:])
    wide = sum_dtype(x.dtype)
    summed = fold_axes(x, axes, True, "norm_sum", sum_, lambda e: cast(wide, e))

    def row(i: Sequence[Expr]) -> tuple[Expr | int, ...]:
        return tuple(0 if d >= axis else e for d, e in enumerate(i))

    mean = compute(summed.shape, lambda *i: summed[i] / count, "norm_mean")
    centred = compute(x.shape, lambda *i: cast(wide, x[i]) - mean[row(i)], "norm_centred")
    squares = fold_axes(centred, axes, True, "norm_squares", sum_, lambda e: e * e)
    scales = compute(squares.shape, lambda *i: 1.0 / unary("sqrt", squares[i] / count + epsilon), "norm_scale")

    def body(*i: Expr) -> Expr:
        normal = centred[i] * scales[row(i)]
        weight, offset = (cast(wide, element(t, i, x.shape)) for t in (scale, bias))
        return cast(x.dtype, normal * weight + offset)

    return compute(x.shape, body, "layer_norm")
