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
from collections.abc import Callable
from typing import Any

from autotune.ops.winograd import TILES, Factors, register
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, as_expr, cast
from autotune.tensor.stage import compute, reduce_axis, sum_, table

FORMS = {"matrices": None, "bf16": DType.bf16}
"""What is added to the names of tiles, and to what their elements are rounded."""

ALGORITHMS = {f"{name}_{form}": (tile, rounds) for name, tile in TILES.items() for form, rounds in FORMS.items()}
"""The algorithms: their tiles, and to what elements of these are rounded."""


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


for _name, (_tile, _rounds) in ALGORITHMS.items():
    register(_name, _tile, as_matrices, _rounds)
