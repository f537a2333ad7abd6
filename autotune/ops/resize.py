"""Resizing of any dimensions: nearest elements, linear and cubic interpolation, with and without antialiasing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.ops.checks import flag, integers, listed, number, numeric, require, word
from autotune.ops.registry import Needed, operator
from autotune.ops.resample import (
    COORDINATES,
    Array,
    Taps,
    affine_place,
    cubic_kernel,
    dimensions,
    interpolated,
    linear_kernel,
    nearest_places,
    row,
)
from autotune.ops.window import inside
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Read, Table, cast, const, maximum, minimum, read, select, unary
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_

ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
MAX_WRITTEN_OUT = 4  # taps that are one expression; longer sums are loops
EXACT_IN_F32 = (DType.i8, DType.u8, DType.i16, DType.u16, DType.f16, DType.bf16, DType.f32)


@operator(
    "resize", sizes=Needed.integers, scales=(), mode="nearest", coordinates="half_pixel", rounding="round_prefer_floor",
    cubic_a=-0.75, antialias=False, exclude_outside=False, extrapolation=0.0, roi=(),
)  # fmt: skip
def resize(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x with every dimension resampled to `sizes`.

    `scales` are the factors that coordinates are computed with; without them, sizes over extents. `roi` has the start
    of every dimension, then the end, as fractions of it: tf_crop_and_resize takes that part, and gives `extrapolation`
    for what lies outside of x.
    """
    (x,) = inputs
    rank = len(x.shape)
    sizes = integers("resize", attrs, "sizes", rank, 0)
    scales = attrs["scales"] or tuple(size / n if n else 1.0 for size, n in zip(sizes, x.shape, strict=True))
    require(len(scales) == rank and min(scales, default=1) > 0, f"resize: scales={scales} must be {rank} positive ones")
    require(len(attrs["roi"]) in (0, 2 * rank), f"resize: roi={attrs['roi']} must be {2 * rank} numbers")
    mode = word("resize", attrs, "mode", ("nearest", "linear", "cubic"))
    word("resize", attrs, "coordinates", COORDINATES)
    rounding = word("resize", attrs, "rounding", ROUNDINGS)
    require(0 in sizes or 0 not in x.shape, f"resize: {x.shape} has no elements to make {sizes} of")
    if 0 in sizes:
        zero = const(0, x.dtype)
        return compute(sizes, lambda *i: zero, "resize")
    for size in (size for size, n in zip(sizes, x.shape, strict=True) if size != n):
        listed("resize", size)
    sides = dimensions({**attrs, "sizes": sizes, "scales": scales}, x.shape)
    extrapolation = number("resize", attrs, "extrapolation")
    if mode == "nearest":
        require(not flag("resize", attrs, "antialias"), "resize: antialias needs mode=linear or mode=cubic")
        # Of the same shape it is x, whatever the scales are, as in ONNX Runtime; but a region of it is one.
        same = sizes == x.shape and attrs["coordinates"] != "tf_crop_and_resize"
        places = [None if same or d.unchanged else nearest_places(d, rounding) for d in sides]

        def body(*i: Expr) -> Expr:
            at = tuple(e if p is None else _place(p, e) for p, e in zip(places, i, strict=True))
            return _with_surroundings(x[at], i, [d.beyond(rounded=True) for d in sides], extrapolation)

        return compute(sizes, body, "resize")
    numeric("resize", x)
    wide = DType.f32 if x.dtype in EXACT_IN_F32 else DType.f64
    kernel = linear_kernel if mode == "linear" else cubic_kernel(number("resize", attrs, "cubic_a"))
    value = x
    # Shrinking first leaves less to do.
    for d in sorted((d for d in range(rank) if not sides[d].unchanged), key=lambda d: sizes[d] / x.shape[d]):
        taps = interpolated(
            sides[d],
            kernel,
            1 if mode == "linear" else 2,
            antialias=flag("resize", attrs, "antialias"),
            exclude_outside=flag("resize", attrs, "exclude_outside"),
        )
        value = _along(value, d, taps, wide)
    within = [d.beyond(rounded=False) for d in sides]
    if value.dtype is x.dtype and not any(within):
        return value if value is not x else compute(sizes, lambda *i: x[i], "resize")
    return compute(
        sizes, lambda *i: _with_surroundings(_rounded(value[i], x.dtype), i, within, extrapolation), "resize"
    )


def _along(x: Tensor, d: int, taps: Taps, wide: DType) -> Tensor:
    """One dimension interpolated."""
    shape = tuple(taps.weights.shape[1] if n == d else e for n, e in enumerate(x.shape))
    name = f"resize_{d}"
    if len(taps.places) > MAX_WRITTEN_OUT:
        return _summed(x, d, taps, wide, shape, name)

    def body(*i: Expr) -> Expr:
        total: Expr | None = None
        for places, weights in zip(taps.places, taps.weights, strict=True):
            element = cast(wide, _element(x, d, places, i))
            same = float(weights[0]) if np.all(weights == weights[0]) else None
            weight: Expr = row(name, weights, i[d], wide) if same is None else const(same, wide)
            part = element if same == 1 else element * weight
            total = part if total is None else total + part
        assert total is not None  # weights sum to 1
        return total

    return compute(shape, body, name)


def _summed(x: Tensor, d: int, taps: Taps, wide: DType, shape: tuple[int, ...], name: str) -> Tensor:
    """The same as a loop over the taps."""
    t = reduce_axis(len(taps.places), "t")

    def matrix(values: Array, o: Expr, dtype: DType) -> Table:
        return Table(name, tuple(map(float, values.ravel())), values.shape, (t.var, o), dtype)

    def body(*i: Expr) -> Reduction:
        first = affine_place(taps.places[0], i[d])
        if first is None or np.any(np.diff(taps.places, axis=0) != 1):
            at: Expr = matrix(np.clip(taps.places, 0, x.shape[d] - 1), i[d], DType.i64)
            element = x[(*i[:d], at, *i[d + 1 :])]
        else:
            at = first + t.var
            overhang = (bool(taps.places.min() < 0), bool(taps.places.max() >= x.shape[d]))
            element = read(x, (*i[:d], at, *i[d + 1 :]), when=inside((at,), (x.shape[d],), (overhang,)))
        return sum_(cast(wide, element) * matrix(taps.weights, i[d], wide), t)

    return compute(shape, body, name)


def _element(x: Tensor, d: int, places: Array, i: Sequence[Expr]) -> Read:
    """x at the places of dimension d; 0 outside, where nothing is or its weight is 0."""
    at = affine_place(places, i[d])
    if at is None:
        return x[(*i[:d], _place(np.clip(places, 0, x.shape[d] - 1), i[d]), *i[d + 1 :])]
    overhang = (bool(places.min() < 0), bool(places.max() >= x.shape[d]))
    return read(x, (*i[:d], at, *i[d + 1 :]), when=inside((at,), (x.shape[d],), (overhang,)))


def _place(places: Array, o: Expr) -> Expr:
    """`places[o]`: an affine form, or read from a table."""
    found = affine_place(places, o)
    return row("places", places, o, DType.i64) if found is None else found


def _with_surroundings(
    e: Expr, i: Sequence[Expr], within: Sequence[tuple[int, int] | None], extrapolation: float
) -> Expr:
    """`e`, or the extrapolation value where a dimension comes from outside of what is within."""
    for o, side in zip(i, within, strict=True):
        if side is not None:
            e = select((o >= side[0]) & (o < side[1]), e, const(extrapolation, e.dtype))
    return e


def _rounded(e: Expr, dtype: DType) -> Expr:
    """A number as `dtype`: integers are rounded and saturate."""
    if dtype.is_float:
        return cast(dtype, e)
    low = -(2 ** (dtype.bits - 1)) if dtype.is_signed else 0
    high = 2 ** (dtype.bits - 1) - 1 if dtype.is_signed else 2**dtype.bits - 1
    if dtype.bits == 64:
        high -= 1023 if dtype.is_signed else 2047  # the nearest f64 is out of range
    return cast(dtype, minimum(maximum(unary("round", e), low), high))
