"""Softmax along an axis, stable for any input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.ops.checks import axis_of, floating, integer
from autotune.ops.precision import sum_dtype
from autotune.ops.reduce import fold_axes
from autotune.ops.registry import operator
from autotune.tensor.expr import Expr, cast, unary
from autotune.tensor.stage import Tensor, compute, max_, sum_


@operator("softmax", axis=-1)
def softmax(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """exp(x - max) / sum of the same, in four stages: softmax_max, softmax_exp, softmax_sum and softmax."""
    return _softmax("softmax", inputs, attrs, lambda shifted, e, total: e / total)


@operator("log_softmax", axis=-1)
def log_softmax(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The logarithm of softmax: x - max - log(sum of exp(x - max))."""
    return _softmax("log_softmax", inputs, attrs, lambda shifted, e, total: shifted - unary("log", total))


def _softmax(
    op: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any], finish: Callable[[Expr, Expr, Expr], Expr]
) -> Tensor:
    (x,) = inputs
    floating(op, x)
    axis = axis_of(op, integer(op, attrs, "axis"), len(x.shape))
    wide = sum_dtype(x.dtype)
    largest = fold_axes(x, (axis,), True, f"{op}_max", max_)

    def row(i: Sequence[Expr]) -> tuple[Expr | int, ...]:
        return tuple(0 if d == axis else e for d, e in enumerate(i))

    def shifted(i: Sequence[Expr]) -> Expr:
        return cast(wide, x[tuple(i)]) - cast(wide, largest[row(i)])

    powers = compute(x.shape, lambda *i: unary("exp", shifted(i)), f"{op}_exp")
    total = fold_axes(powers, (axis,), True, f"{op}_sum", sum_)
    return compute(x.shape, lambda *i: cast(x.dtype, finish(shifted(i), powers[i], total[row(i)])), op)
