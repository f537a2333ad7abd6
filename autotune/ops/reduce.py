"""Reductions over axes, and the position of the largest or smallest element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.ops.checks import axes_of, axis_of, flag, integer, integers, numeric, require
from autotune.ops.precision import rounded, sum_dtype
from autotune.ops.registry import Needed, lookup, operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, select, unary
from autotune.tensor.stage import (
    Axis,
    Reduction,
    Tensor,
    compute,
    largest_,
    max_,
    min_,
    prod_,
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


Point = Callable[[Expr], Expr]


def _same(e: Expr) -> Expr:
    return e


def _real(fn: Point) -> Point:
    """`fn` of a number; of integers through f64, truncated."""
    return lambda e: fn(e) if e.dtype.is_float else cast(e.dtype, fn(cast(DType.f64, e)))


def _define(name: str, fold: Fold, value: Point = _same, finish: Point = _same) -> None:
    """finish(fold of value(x) over the axes); 16-bit floats are folded in f32 unless only compared."""
    compared = name in ("reduce_max", "reduce_min")

    @operator(name, traits="folds", axes=Needed.integers, keepdims=True)
    def define(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        (x,) = inputs
        if not compared:
            numeric(name, x)
        axes = axes_of(name, integers(name, attrs, "axes", None), len(x.shape))
        total = x.dtype if compared else sum_dtype(x.dtype)
        keepdims = flag(name, attrs, "keepdims")
        found = fold_axes(x, axes, keepdims, name, fold, lambda e: value(cast(total, e)))
        if finish is not _same:
            _, names = kept_shape(x, axes, keepdims)
            return compute(found.shape, lambda *i: cast(x.dtype, finish(found[i])), f"{name}_finish", names)
        return rounded(found, x, name)


def _square(e: Expr) -> Expr:
    return e * e


def _log(e: Expr) -> Expr:
    return unary("log", e)


_define("reduce_sum", sum_)
_define("reduce_prod", prod_)
_define("reduce_max", max_)
_define("reduce_min", min_)
_define("reduce_l1", sum_, lambda e: unary("abs", e))
_define("reduce_l2", sum_, _square, _real(lambda e: unary("sqrt", e)))
_define("reduce_log_sum", sum_, finish=_real(_log))
_define("reduce_sum_square", sum_, _square)


@operator("reduce_log_sum_exp", traits="folds", axes=Needed.integers, keepdims=True)
def reduce_log_sum_exp(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """max + log(sum of exp(x - max)): no overflow for large x. Integers are computed in f64 and truncated."""
    (x,) = inputs
    numeric("reduce_log_sum_exp", x)
    axes = axes_of("reduce_log_sum_exp", integers("reduce_log_sum_exp", attrs, "axes", None), len(x.shape))
    keepdims = flag("reduce_log_sum_exp", attrs, "keepdims")
    wide = sum_dtype(x.dtype) if x.dtype.is_float else DType.f64
    largest = fold_axes(x, axes, True, "log_sum_exp_max", largest_, lambda e: cast(wide, e))
    shift = compute(  # an infinite largest would leave inf - inf
        largest.shape, lambda *i: select(unary("isinf", largest[i]), 0.0, largest[i]), "log_sum_exp_shift"
    )
    folded = {d: reduce_axis(x.shape[d], f"r{d}") for d in axes}
    shape, names = kept_shape(x, axes, keepdims)

    def row(indices: Sequence[Expr]) -> tuple[Expr | int, ...]:
        return tuple(0 if d in folded else e for d, e in enumerate(full_index(x, folded, indices, keepdims)))

    def body(*indices: Expr) -> Expr:
        e = unary("exp", cast(wide, x[full_index(x, folded, indices, keepdims)]) - shift[row(indices)])
        return sum_(e, tuple(folded.values())) if folded else e

    total = compute(shape, body, "log_sum_exp_sum", names)
    return compute(shape, lambda *i: cast(x.dtype, _log(total[i]) + shift[row(i)]), "reduce_log_sum_exp", names)


@operator("reduce_mean", traits="folds", axes=Needed.integers, keepdims=True)
def reduce_mean(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Sum over the axes, divided by the number of elements summed; narrow integers are summed in i64."""
    (x,) = inputs
    numeric("reduce_mean", x)
    axes = axes_of("reduce_mean", integers("reduce_mean", attrs, "axes", None), len(x.shape))
    count = 1
    for d in axes:
        count *= x.shape[d]
    total = DType.i64 if x.dtype.is_int and x.dtype.bits < 64 else sum_dtype(x.dtype)
    keepdims = flag("reduce_mean", attrs, "keepdims")
    summed = fold_axes(x, axes, keepdims, "mean_sum", sum_, lambda e: cast(total, e))
    _, names = kept_shape(x, axes, keepdims)
    return compute(summed.shape, lambda *i: cast(x.dtype, summed[i] / count), "reduce_mean", names)


def _define_arg(name: str, fold: Fold) -> None:
    @operator(name, traits="folds", axis=0, keepdims=True, select_last_index=False)
    def define(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        """The first (or last) position of what the extreme is equal to; NaN counts as the extreme.

        Two passes, each a plain reduction: comparing pairs of value and position costs several times as much.
        """
        (x,) = inputs
        numeric(name, x)
        axis = axis_of(name, integer(name, attrs, "axis"), len(x.shape))
        keepdims, last = flag(name, attrs, "keepdims"), flag(name, attrs, "select_last_index")
        require(x.shape[axis] > 0 or 0 in kept_shape(x, (axis,), True)[0], f"{name}: axis {axis} of {x.shape} is empty")
        extreme = fold_axes(x, (axis,), True, f"{name}_value", fold)
        folded = {axis: reduce_axis(x.shape[axis], f"r{axis}")}
        shape, names = kept_shape(x, (axis,), keepdims)
        narrow = DType.i32 if x.shape[axis] < 1 << 31 else DType.i64

        def body(*indices: Expr) -> Reduction:
            full = full_index(x, folded, indices, keepdims)
            value = x[full]
            here = binary("eq", value, extreme[tuple(0 if d == axis else e for d, e in enumerate(full))])
            if x.dtype.is_float:
                here = here | unary("isnan", value)
            position = cast(narrow, folded[axis].var)
            return (
                max_(select(here, position, -1), folded[axis])
                if last
                else min_(select(here, position, (1 << (narrow.bits - 1)) - 1), folded[axis])
            )

        position = compute(shape, body, f"{name}_position", names)
        return compute(shape, lambda *i: cast(DType.i64, position[i]), name, names)


_define_arg("argmax", max_)
_define_arg("argmin", min_)


@operator("hardmax", traits="folds", axis=-1)
def hardmax(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """1 at the first largest element along the axis, 0 elsewhere."""
    (x,) = inputs
    numeric("hardmax", x)
    axis = axis_of("hardmax", integer("hardmax", attrs, "axis"), len(x.shape))
    first = lookup("argmax").compute(inputs, {"axis": axis, "keepdims": True, "select_last_index": False})

    def body(*indices: Expr) -> Expr:
        here = first[tuple(0 if d == axis else i for d, i in enumerate(indices))]
        return cast(x.dtype, binary("eq", here, indices[axis]))

    return compute(x.shape, body, "hardmax")
