"""Depthwise convolution, two rows of outputs at a time, with fewer multiplications: F(2, 3) and F(2, 2) down columns.

Three taps for two outputs take four multiplications instead of six (Winograd's F(2, 3)), two taps three instead of
four (Karatsuba's trick). A window of more rows is cut into pieces of three and two. All interpolation points are 0, 1,
-1 and infinity: transforms only add, so errors are like the direct sum's. The products of all pieces go into four sums:
what goes into the upper output only, into both, into the upper and negated into the lower, into the lower only. A piece
is at most one product of each, so products are numbered by piece and sum.

The additions are as many as the multiplications saved: it pays where a CPU adds beside its multiplications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from autotune.ops.checks import floating, require, same_dtype
from autotune.ops.conv import Conv
from autotune.ops.precision import accumulator
from autotune.ops.registry import algorithm
from autotune.ops.window import image_element, overhang
from autotune.ops.workload import TensorType
from autotune.tensor.dtype import DType
from autotune.tensor.expr import cast
from autotune.tensor.stage import Tensor, compute, reduce_axis, sum_, table

ROWS = 2
"""Rows of outputs of a tile."""

SUMS = 4
UPPER_LOWER = ((1.0, 1.0, 1.0, 0.0), (0.0, 1.0, -1.0, 1.0))
"""How the sums make the two outputs."""


class Piece(NamedTuple):
    """Taps in a row: for each product, by sum, its factors of inputs and taps; None: no product goes into that sum."""

    inputs: tuple[tuple[float, ...] | None, ...]
    taps: tuple[tuple[float, ...] | None, ...]


THREE = Piece(
    ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
    ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
)
TWO = Piece(((1, -1, 0), (0, 1, 0), None, (0, -1, 1)), ((1, 0), (1, 1), None, (0, 1)))


def applies(size: Conv) -> bool:
    """Whether the algorithm computes this convolution: one input and one output channel per group, no strides."""
    plain = set(size.stride) == set(size.dilation) == {1}
    return size.rank == 2 and size.groups == size.c == size.k and plain and size.r >= 2


def pieces(window: int) -> tuple[Piece, ...]:
    """The pieces of a window of 2 rows or more: as many of three as possible."""
    twos = -window % 3
    return (THREE,) * ((window - 2 * twos) // 3) + (TWO,) * twos


def products(window: int) -> int:
    """Multiplications of a column of taps for two outputs; the plain sum takes 2 · window."""
    return sum(row is not None for piece in pieces(window) for row in piece.taps)


def multiplications(size: Conv) -> int:
    """Of whole tiles."""
    return size.n * size.c * -(-size.oh // ROWS) * size.ow * products(size.r) * size.s


def additions(window: int) -> int:
    """Additions that combine a column of inputs for all products."""
    rows = [row for piece in pieces(window) for row in piece.inputs if row is not None]
    return sum(sum(factor != 0 for factor in row) - 1 for row in rows)


def _count(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> int | None:
    size = Conv.of("conv2d", types[0].shape, types[1].shape, attrs)
    return multiplications(size) if DType(types[0].dtype).is_float and applies(size) else None


@algorithm("conv2d", "winograd_rows", multiplications=_count, strict=False)
def winograd_rows(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The stages wino_u (constants only), wino_v, wino_m, wino_y and conv."""
    x, weight = inputs
    same_dtype("conv2d", inputs)
    size = Conv.of("conv2d", x.shape, weight.shape, attrs)
    floating("conv2d winograd", x)
    require(applies(size), "conv2d: winograd_rows needs a depthwise convolution with stride 1 and dilation 1")
    total = accumulator(x.dtype)
    cut = pieces(size.r)
    of_inputs, of_taps, used = (table(n, rows, total) for n, rows in zip(("BT", "G", "used"), _matrices(size.r, cut)))
    upper_lower = table("AT", UPPER_LOWER, total)
    tiles = -(-size.oh // ROWS)
    top, left = size.pad[:2]
    sides = overhang(size.h, tiles, size.r + 1, ROWS, 1, top), size.sides[1]

    r, i = reduce_axis(size.r, "r"), reduce_axis(size.r + 1, "i")
    u = compute(
        (size.k, len(cut), SUMS, size.s),
        lambda k, e, g, s: sum_(of_taps(e * SUMS + g, r) * cast(total, weight[k, 0, r, s]), r),
        name="wino_u",
    )
    v = compute(
        (size.n, size.c, tiles, len(cut), SUMS, size.ow + size.s - 1),
        lambda n, c, t, e, g, w: sum_(
            of_inputs(e * SUMS + g, i)
            * cast(total, image_element(x, n, c, (t * ROWS + i.var - top, w - left if left else w), sides)),
            i,
        ),
        name="wino_v",
    )
    e, s, g = reduce_axis(len(cut), "e"), reduce_axis(size.s, "s"), reduce_axis(SUMS, "g")
    products = compute(
        (size.n, size.k, tiles, SUMS, size.ow),
        lambda n, k, t, g, ow: sum_(used(e, g) * u[k, e, g, s] * v[n, k, t, e, g, ow + s.var], (e, s)),
        name="wino_m",
    )
    y = compute(
        (size.n, size.k, tiles, ROWS, size.ow),
        lambda n, k, t, q, ow: sum_(upper_lower(q, g) * products[n, k, t, g, ow], g),
        name="wino_y",
    )
    return compute(
        (size.n, size.k, size.oh, size.ow),
        lambda n, k, oh, ow: cast(x.dtype, y[n, k, oh // ROWS, oh % ROWS, ow]),
        name="conv",
    )


def _matrices(window: int, cut: Sequence[Piece]) -> tuple[list[list[float]], list[list[float]], list[list[float]]]:
    """Of inputs (pieces x sums, window + 1), of taps (pieces x sums, window), and which products there are."""
    of_inputs: list[list[float]] = []
    of_taps: list[list[float]] = []
    used, first = [], 0
    for piece in cut:
        length = len(piece.taps[0] or ())
        for factors, extent, rows in ((piece.inputs, window + 1, of_inputs), (piece.taps, window, of_taps)):
            rows += [[0.0] * first + [float(f) for f in row or ()] for row in factors]
            for row in rows[-SUMS:]:
                row += [0.0] * (extent - len(row))
        used.append([float(row is not None) for row in piece.taps])
        first += length
    return of_inputs, of_taps, used
