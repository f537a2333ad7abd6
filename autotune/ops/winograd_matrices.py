"""Winograd's filtering as products of matrices: one of tiles by channels for each element of a transformed tile.

What multiplies such may be any schedule of matrix products. Where a convolution allows it (`Conv.rounded`), transformed
tiles and windows are rounded to bf16, which instructions multiply by pairs: sums and the transforms themselves are f32.
An element errs like two roundings, which the last transforms amplify (docs/adr/0032).
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.ops.checks import floating, require, same_dtype
from autotune.ops.conv import Conv
from autotune.ops.registry import algorithm
from autotune.ops.winograd import (
    OPERATORS,
    TILES,
    Factors,
    Tile,
    applies,
    convolved,
    edges,
    in_floats,
    most_error,
    most_taps,
    multiplications,
)
from autotune.ops.workload import TensorType
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, as_expr, cast
from autotune.tensor.stage import Tensor, compute, reduce_axis, sum_, table

FORMS = {"matrices": None, "bf16": DType.bf16}
"""What is added to the names of tiles, and to what their elements are rounded."""

ALGORITHMS = {f"{name}_{form}": (tile, rounds) for name, tile in TILES.items() for form, rounds in FORMS.items()}
"""The algorithms: their tiles, and to what elements of these are rounded."""


def allowed(size: Conv, tile: Tile, rounds: DType | None) -> bool:
    """Whether such tiles compute this convolution, and may be rounded so."""
    points = size.points if rounds is None else size.rounded
    return applies(size, tile) and max(edges(size, tile)) <= points


def as_matrices(f: Factors) -> Callable[..., Expr]:
    """The stages wino_u (point, filter, *terms), wino_v (point, image, tile, channel) and wino_m (point, result, tile,
    filter), tiles row after row; what is rounded on the way is wino_vf."""
    images, inner, rows, columns, _, _ = f.halfway.shape
    points, across, narrow = math.prod(f.edge), f.edge[1], f.use.factor is not f.use.total

    def window(p: Expr, k: Expr, *term: Expr) -> Any:
        taken = functools.partial(f.window, p // across, p % across, k, term)
        if not narrow:
            return sum_(taken(*(tap.var for tap in f.taps)), f.taps)
        each = (
            taken(*(as_expr(n, DType.i64) for n in at))
            for at in itertools.product(*(range(tap.extent) for tap in f.taps))
        )
        return cast(f.use.factor, functools.reduce(operator.add, each))  # no sum, but what is written of one

    u = compute((points, f.filters, *(axis.extent for axis in f.along)), window, name="wino_u")
    at, j = table("wino_v_m", f.signs, f.halfway.dtype), reduce_axis(len(f.signs[0]), "j")
    v = compute(
        (points, images, rows * columns, inner),
        lambda p, n, t, c: sum_(at(p % across, j) * f.halfway[n, c, t // columns, t % columns, p // across, j], j),
        name="wino_vf" if narrow else "wino_v",
    )
    if narrow:
        wide = v
        v = compute(wide.shape, lambda *at: cast(f.use.factor, wide[at]), name="wino_v")
    total = f.use.total
    m = compute(
        (points, f.results, rows * columns, f.filters),
        lambda p, n, t, k: sum_(
            cast(total, u[(p, k, *f.along)]) * cast(total, v[p, f.image(n), t, f.along[-1]]), f.along
        ),
        name="wino_m",
        amplified=f.amplified,
    )
    return lambda n, k, th, tw, xi, nu: m[xi * across + nu, n, th * columns + tw, k]


def _winograd(op: str, name: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    x, weight = inputs
    same_dtype(op, inputs)
    size, (tile, rounds) = Conv.of(op, x.shape, weight.shape, attrs), ALGORITHMS[name]
    floating(f"{op} winograd", x)
    require(
        allowed(size, tile, rounds),
        f"{op}: {name} needs a square kernel of 2 to {most_taps(tile)} taps per stride, the same stride both ways, "
        f"dilation 1, groups 1, and as many points as its tiles have; points={size.points}, rounded={size.rounded}",
    )
    use = in_floats(size, tile, x.dtype)
    return convolved(x, weight, size, tile, use._replace(factor=rounds or use.factor), as_matrices)


def _count(op: str, name: str, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> int | None:
    size, (tile, rounds) = Conv.of(op, types[0].shape, types[1].shape, attrs), ALGORITHMS[name]
    able = DType(types[0].dtype).is_float and allowed(size, tile, rounds)
    return multiplications(size, tile) if able else None


for _op, (_name, (_tile, _rounds)) in itertools.product(OPERATORS, ALGORITHMS.items()):
    algorithm(
        _op,
        _name,
        multiplications=functools.partial(_count, _op, _name),
        error=functools.partial(most_error, _tile),
        strict=False,
        factor=_rounds,
        prepared=(1,),
        rounds=_rounds,
    )(functools.partial(_winograd, _op, _name))
