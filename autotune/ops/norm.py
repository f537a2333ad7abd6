"""Normalisation: local response, over the last axes or any, by mean and variance or by size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.broadcast import broadcast_shapes, element
from autotune.ops.checks import axes_of, axis_of, floating, integer, integers, number, require, same_dtype
from autotune.ops.precision import sum_dtype
from autotune.ops.reduce import fold_axes
from autotune.ops.registry import Needed, operator
from autotune.tensor.expr import Expr, binary, cast, read, select, unary
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
    before, after = (min(n, max(x.shape[1] - 1, 0)) for n in ((size - 1) // 2, size // 2))
    j = reduce_axis(before + 1 + after, "j")

    def square(*i: Expr) -> Reduction:
        channel = i[1] + j.var - before
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


@operator(
    "layer_norm", operands="data scale bias", weights="scale bias", traits="folds", axis=-1, epsilon=1e-5, result=0
)
def layer_norm(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over all axes from `axis` on.

    `result` 0 is that, 1 the mean and 2 the reciprocal of the root; these keep the axes with extent 1, and are f32 for
    16-bit floats.
    """
    x, scale, bias = inputs
    axes, epsilon = _trailing("layer_norm", inputs, attrs)
    result = integer("layer_norm", attrs, "result", 0)
    require(result <= 2, f"layer_norm: result={result} must be 0, 1 or 2")
    wide = sum_dtype(x.dtype)
    mean, centred, squares = _moments(x, axes)
    count = math.prod(x.shape[d] for d in axes)
    scales = compute(squares.shape, lambda *i: 1.0 / unary("sqrt", squares[i] / count + epsilon), "norm_scale")
    if result:
        return (mean, scales)[result - 1]

    def body(*i: Expr) -> Expr:
        normal = centred[i] * scales[_row(i, axes)]
        weight, offset = (cast(wide, element(t, i, x.shape)) for t in (scale, bias))
        return cast(x.dtype, normal * weight + offset)

    return compute(x.shape, body, "layer_norm")


@operator("rms_norm", operands="data scale", weights="scale", traits="folds", axis=-1, epsilon=1e-5)
def rms_norm(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x / sqrt(mean of squares + epsilon) * scale over all axes from `axis` on."""
    x, scale = inputs
    axes, epsilon = _trailing("rms_norm", inputs, attrs)
    count = math.prod(x.shape[d] for d in axes)
    wide = sum_dtype(x.dtype)
    squares = fold_axes(x, axes, True, "norm_squares", sum_, lambda e: cast(wide, e) * cast(wide, e))
    scales = compute(squares.shape, lambda *i: 1.0 / unary("sqrt", squares[i] / count + epsilon), "norm_scale")

    def body(*i: Expr) -> Expr:
        weight = cast(wide, element(scale, i, x.shape))
        return cast(x.dtype, cast(wide, x[i]) * scales[_row(i, axes)] * weight)

    return compute(x.shape, body, "rms_norm")


@operator("mean_variance_norm", traits="folds", axes=Needed.integers, epsilon=1e-9)
def mean_variance_norm(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """(x - mean) / (standard deviation + epsilon) over any axes."""
    (x,) = inputs
    floating("mean_variance_norm", x)
    axes = axes_of("mean_variance_norm", integers("mean_variance_norm", attrs, "axes", None), len(x.shape))
    epsilon = number("mean_variance_norm", attrs, "epsilon")
    count = math.prod(x.shape[d] for d in axes)
    _, centred, squares = _moments(x, axes)
    scales = compute(squares.shape, lambda *i: 1.0 / (unary("sqrt", squares[i] / count) + epsilon), "norm_scale")
    return compute(x.shape, lambda *i: cast(x.dtype, centred[i] * scales[_row(i, axes)]), "mean_variance_norm")


@operator("lp_norm", traits="folds", axis=-1, p=2)
def lp_norm(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x divided by the sum of |x| (p = 1) or the root of the sum of squares (p = 2) along an axis; 0 if that is 0."""
    (x,) = inputs
    floating("lp_norm", x)
    axes = (axis_of("lp_norm", integer("lp_norm", attrs, "axis"), len(x.shape)),)
    p = integer("lp_norm", attrs, "p", 1)
    require(p <= 2, f"lp_norm: p={p} must be 1 or 2")
    wide = sum_dtype(x.dtype)

    def power(e: Expr) -> Expr:
        return unary("abs", cast(wide, e)) if p == 1 else cast(wide, e) * cast(wide, e)

    total = fold_axes(x, axes, True, "norm_total", sum_, power)

    def reciprocal(*i: Expr) -> Expr:
        size = total[i] if p == 1 else unary("sqrt", total[i])
        return select(binary("eq", size, 0.0), 0.0, 1.0 / size)

    scales = compute(total.shape, reciprocal, "norm_scale")
    return compute(x.shape, lambda *i: cast(x.dtype, cast(wide, x[i]) * scales[_row(i, axes)]), "lp_norm")


def _trailing(op: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> tuple[tuple[int, ...], float]:
    """The axes from `axis` on and epsilon, after checking that the other operands fit the first."""
    x = inputs[0]
    floating(op, x)
    same_dtype(op, inputs)
    axis = axis_of(op, integer(op, attrs, "axis"), len(x.shape))
    for t, name in zip(inputs[1:], ("scale", "bias")):
        fits = broadcast_shapes(op, (t.shape, x.shape)) == x.shape
        require(fits, f"{op}: {name} of shape {t.shape} does not broadcast to {x.shape}")
    return tuple(range(axis, len(x.shape))), number(op, attrs, "epsilon")


def _moments(x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Mean over the axes, x less the mean, and the sum of its squares; in f32 for 16-bit floats."""
    wide = sum_dtype(x.dtype)
    count = math.prod(x.shape[d] for d in axes)
    summed = fold_axes(x, axes, True, "norm_sum", sum_, lambda e: cast(wide, e))
    mean = compute(summed.shape, lambda *i: summed[i] / count, "norm_mean")
    centred = compute(x.shape, lambda *i: cast(wide, x[i]) - mean[_row(i, axes)], "norm_centred")
    return mean, centred, fold_axes(centred, axes, True, "norm_squares", sum_, lambda e: e * e)


def _row(indices: Sequence[Expr], axes: Sequence[int]) -> tuple[Expr | int, ...]:
    """The index into a tensor whose `axes` have been folded."""
    return tuple(0 if d in axes else e for d, e in enumerate(indices))
