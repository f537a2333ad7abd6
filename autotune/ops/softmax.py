"""Softmax along an axis, stable for any input."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.ops.checks import axis_of, floating, integer
from autotune.ops.precision import sum_dtype
from autotune.ops.reduce import fold_axes
from autotune.ops.registry import operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, cast, maximum, select, unary
from autotune.tensor.stage import Tensor, compute, largest_, sum_

_LEAST_EXPONENT = {DType.f32: -126, DType.f64: -1022}
"""Of a normal number of two; arithmetic with less is ten times as slow on most CPUs."""


def falling_power(x: Expr, count: int) -> Expr:
    """e**x for x of at most 0, where such powers are summed up and divided by their sum: 0 where the quotient would be
    no normal number, or nearly none.

    A power of two is cheaper than one of e, and the product rounds no worse than the difference in x did.

    Args:
        count: how many are summed up at most, of which one is 1.
    """
    scaled = x * math.log2(math.e)
    least = float(_LEAST_EXPONENT[x.dtype] + max(count, 1).bit_length())
    return select(scaled < least, 0.0, unary("exp2", maximum(scaled, least)))


@operator("softmax", traits="folds", axis=-1)
def softmax(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """exp(x - max) / sum of the same; stages softmax_max, _exp, _sum, _scale = 1 / sum, and softmax."""
    return _softmax("softmax", inputs, attrs, lambda total: 1.0 / total, lambda shifted, e, scale: e * scale)


@operator("log_softmax", traits="folds", axis=-1)
def log_softmax(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The logarithm of softmax: x - max - log(sum of exp(x - max))."""
    return _softmax("log_softmax", inputs, attrs, lambda t: unary("log", t), lambda shifted, e, scale: shifted - scale)


def _softmax(
    op: str,
    inputs: Sequence[Tensor],
    attrs: Mapping[str, Any],
    of_sum: Callable[[Expr], Expr],
    finish: Callable[[Expr, Expr, Expr], Expr],
) -> Tensor:
    (x,) = inputs
    floating(op, x)
    axis = axis_of(op, integer(op, attrs, "axis"), len(x.shape))
    wide = sum_dtype(x.dtype)
    # NaN needs no place in the maximum: its own power is NaN, then the sum, then the whole row.
    largest = fold_axes(x, (axis,), True, f"{op}_max", largest_)

    def row(i: Sequence[Expr]) -> tuple[Expr | int, ...]:
        return tuple(0 if d == axis else e for d, e in enumerate(i))

    def shifted(i: Sequence[Expr]) -> Expr:
        return cast(wide, x[tuple(i)]) - cast(wide, largest[row(i)])

    powers = compute(x.shape, lambda *i: falling_power(shifted(i), x.shape[axis]), f"{op}_exp")
    total = fold_axes(powers, (axis,), True, f"{op}_sum", sum_)
    scale = compute(total.shape, lambda *i: of_sum(total[i]), f"{op}_scale")
    return compute(x.shape, lambda *i: cast(x.dtype, finish(shifted(i), powers[i], scale[row(i)])), op)
