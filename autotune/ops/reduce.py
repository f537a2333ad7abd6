"""Reductions over axes, and the position of the largest or smallest element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.ops.checks import axes_of, axis_of, flag, integer, integers, numeric
from autotune.ops.precision import rounded, sum_dtype
from autotune.ops.registry import Needed, operator
from autotune.tensor.expr import Expr, cast
from autotune.tensor.reducer import arg_reducer
from autotune.tensor.stage import (
    Axis,
    Reduction,
    Tensor,
    compute,
    compute_many,
    max_,
    min_,
    prod_,
    reduce,
    reduce_axis,
    sum_,
)

Fold = Callable[[Expr, Sequence[Axis]], Reduction]


def fold_axes(
    x: Tensor, axes: Sequence[int], keepdims: bool, name: str, fold: Fold, value: Callable[[Expr], Expr] = lambda e: e
) -> Tensor:
    """`fold` of `value(x[...])` over `axes` (counted from the front, sorted)."""
    folded = {d: reduce_axis(x.shape[d], f"r{d}") for d in axes}
    shape, names = kept_shape(x, axes, keepdims)
    if not folded:
        return compute(shape, lambda *i: value(x[i]), name, names)

    def body(*indices: Expr) -> Reduction:
        return fold(value(x[full_index(x, folded, indices, keepdims)]), tuple(folded.values()))

    return compute(shape, body, name, names)


def kept_shape(x: Tensor, axes: Sequence[int], keepdims: bool) -> tuple[tuple[int, ...], list[str]]:
    """Shape and axis names of what is left of x."""
    kept = [d for d in range(len(x.shape)) if keepdims or d not in axes]
    return tuple(1 if d in axes else x.shape[d] for d in kept), [f"i{d}" for d in kept]


def full_index(x: Tensor, folded: Mapping[int, Axis], indices: Sequence[Expr], keepdims: bool) -> tuple[Expr, ...]:
    """The index into x at `indices` of the result."""
    rest = iter(indices)
    full: list[Expr] = []
    for d in range(len(x.shape)):
        if d in folded:
            full.append(folded[d].var)
            if keepdims:
                next(rest)
        else:
            full.append(next(rest))
    return tuple(full)


def _define(name: str, fold: Fold) -> None:
    @operator(name, axes=Needed.integers, keepdims=True)
    def define(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        (x,) = inputs
        numeric(name, x)
        axes = axes_of(name, integers(name, attrs, "axes", None), len(x.shape))
        total = x.dtype if name in ("reduce_max", "reduce_min") else sum_dtype(x.dtype)
        found = fold_axes(x, axes, flag(name, attrs, "keepdims"), name, fold, lambda e: cast(total, e))
        return rounded(found, x, name)


_define("reduce_sum", sum_)
_define("reduce_prod", prod_)
_define("reduce_max", max_)
_define("reduce_min", min_)


@operator("reduce_mean", axes=Needed.integers, keepdims=True)
def reduce_mean(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Sum over the axes, divided by the number of elements summed."""
    (x,) = inputs
    numeric("reduce_mean", x)
    axes = axes_of("reduce_mean", integers("reduce_mean", attrs, "axes", None), len(x.shape))
    count = 1
    for d in axes:
        count *= x.shape[d]
    total = sum_dtype(x.dtype)
    keepdims = flag("reduce_mean", attrs, "keepdims")
    summed = fold_axes(x, axes, keepdims, "mean_sum", sum_, lambda e: cast(total, e))
    _, names = kept_shape(x, axes, keepdims)
    return compute(summed.shape, lambda *i: cast(x.dtype, summed[i] / count), "reduce_mean", names)


def _define_arg(name: str) -> None:
    @operator(name, axis=0, keepdims=True, select_last_index=False)
    def define(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        (x,) = inputs
        numeric(name, x)
        axis = axis_of(name, integer(name, attrs, "axis"), len(x.shape))
        keepdims = flag(name, attrs, "keepdims")
        reducer = arg_reducer(name, x.dtype, flag(name, attrs, "select_last_index"))
        folded = {axis: reduce_axis(x.shape[axis], f"r{axis}")}
        shape, names = kept_shape(x, (axis,), keepdims)

        def body(*indices: Expr) -> Reduction:
            value = x[full_index(x, folded, indices, keepdims)]
            return reduce(reducer, (value, folded[axis].var), folded[axis])

        return compute_many(shape, body, (f"{name}_value", name), names)[1]


_define_arg("argmax")
_define_arg("argmin")
