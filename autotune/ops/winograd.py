"""Winograd's minimal filtering F(m x m, r x r): the same convolution with fewer multiplications (Lavin, CVPR 2016).

Tiles of m x m outputs are computed from (m+r-1) x (m+r-1) inputs in a transformed domain, where the sum over channels
is a batch of matrix products. The transforms' matrices are tables: unrolled, their zeros and ones cost nothing.

With a stride the image is taken apart: every stride-th row and column, once from each start, are channels of their own,
and so are the taps that they meet. That leaves a convolution without stride, of fewer taps over more channels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from autotune.ops.checks import floating, require, same_dtype
from autotune.ops.conv import Conv
from autotune.ops.precision import accumulator
from autotune.ops.registry import algorithm
from autotune.ops.window import image_element, overhang
from autotune.ops.winograd_transforms import Matrix, halves, transforms
from autotune.ops.workload import TensorType
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, cast, read
from autotune.tensor.stage import Axis, Tensor, compute, reduce_axis, sum_, table

MOST = {2: 4, 4: 8, 5: 8, 6: 8}
"""Points of a transformed tile along one side, at most, by m: errors of tiles of 2 x 2 stay like the direct sum's, and
more than eight points would cost most of the precision."""


class Tile(NamedTuple):
    """Outputs of a tile."""

    rows: int
    columns: int


TILES = {
    "winograd_f2": Tile(2, 2),  # 2.25 times fewer multiplications of 3 x 3 windows: small images
    "winograd_f4": Tile(4, 4),  # 4 times fewer
    "winograd_f5": Tile(5, 5),  # 4.6 times fewer: images of which three tiles are a side
    "winograd_f6": Tile(6, 6),  # 5.06 times fewer: large images
    "winograd_f4x2": Tile(4, 2),  # 3 times fewer, and two thirds of the weights of 4 x 4
}
"""The algorithms."""


class Side(NamedTuple):
    """What transforms one side of a tile: taps (points x taps); inputs and products, each in two sparse halves."""

    taps: Matrix
    inputs: tuple[Matrix, Matrix]
    products: tuple[Matrix, Matrix]


class Arithmetic(NamedTuple):
    """How tiles are computed.

    Attributes:
        factor: type of transformed inputs and taps.
        total: of the products' sums, and of what is made of them.
        down, across: the tile's sides.
        output: what an output is, of what the last transform gives.
    """

    factor: DType
    total: DType
    down: Side
    across: Side
    output: Callable[[Expr], Expr]


def taps(size: Conv) -> int:
    """Taps along one side that are left of a square window when its stride, the same both ways, is taken apart."""
    return -(-size.r // size.stride[0])


def channels(size: Conv) -> int:
    """Channels of the image taken apart."""
    return size.c * math.prod(size.stride)


def edges(size: Conv, tile: Tile) -> tuple[int, int]:
    """Points down and across a transformed tile."""
    return tile.rows + taps(size) - 1, tile.columns + taps(size) - 1


def apart(size: Conv) -> Conv:
    """The convolution that is left when the stride is taken apart; of its image, what is read, padding included."""
    if set(size.stride) == {1}:
        return size
    image = tuple(extent + taps(size) - 1 for extent in size.out)
    window = (taps(size), taps(size))
    return replace(size, c=channels(size), image=image, window=window, stride=(1, 1), pad=(0, 0, 0, 0))


def applies(size: Conv, tile: Tile) -> bool:
    """Whether such tiles compute this convolution: a square window, dense, and points enough."""
    square = size.r == size.s and size.stride[0] == size.stride[1]
    dense = size.dilation == (1, 1) and size.groups == 1
    return square and dense and 1 < taps(size) and taps(size) <= most_taps(tile)


def most_taps(tile: Tile) -> int:
    """Taps along one side, at most, for which there are points enough."""
    return min(MOST[m] + 1 - m for m in tile)


@functools.cache
def amplification(tile: Tile, taps: int) -> float:
    """How many times larger than in the products of transforms rounding errors are in the outputs.

    The products' sums are taps² times shorter than a direct convolution's, so they err taps times less.
    """
    return math.sqrt(math.prod(transforms(m, taps).amplification for m in tile))


@functools.cache
def most_error(tile: Tile) -> float:
    """How many times the direct sum's errors such tiles may make: those of the window that they amplify most."""
    return max(1.0, *(amplification(tile, taps) / taps for taps in range(2, most_taps(tile) + 1)))


def multiplications(size: Conv, tile: Tile) -> int:
    """Of whole tiles."""
    tiles = -(-size.oh // tile.rows) * -(-size.ow // tile.columns)
    return size.n * size.k * channels(size) * tiles * math.prod(edges(size, tile))


def transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def _rounding(size: Conv, tile: Tile, data: DType) -> Arithmetic:
    """In floats."""
    total = accumulator(data)
    down, across = (
        Side(t.G, halves(t.BT, monic=True), halves(transposed(t.AT))) for t in (transforms(m, taps(size)) for m in tile)
    )
    return Arithmetic(total, total, down, across, lambda y: cast(data, y))


def _winograd(name: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    x, weight = inputs
    same_dtype("conv2d", inputs)
    size, tile = Conv.of("conv2d", x.shape, weight.shape, attrs), TILES[name]
    floating("conv2d winograd", x)
    require(
        applies(size, tile),
        f"conv2d: {name} needs a square kernel of 2 to {most_taps(tile)} taps per stride, the same stride both ways, "
        "dilation 1 and groups 1",
    )
    return convolved(x, weight, size, tile, _rounding(size, tile, x.dtype))


def convolved(x: Tensor, weight: Tensor, size: Conv, tile: Tile, use: Arithmetic) -> Tensor:
    """The stages wino_x (with a stride only), wino_u (constants only), wino_tp, wino_t, wino_vp, wino_v, wino_m,
    wino_sp, wino_s, wino_yp, wino_y and conv: the image taken apart; weights; inputs down and across the tile;
    products; outputs down and across. `p` is the sparse first half of a transform."""
    edge, step, inner = edges(size, tile), size.stride[0], channels(size)
    rows, columns = -(-size.oh // tile.rows), -(-size.ow // tile.columns)
    top, left = size.pad[:2]

    def phase(q: Expr) -> tuple[Expr, Expr, Expr]:
        """Channel, first row and first column of channel q of the image taken apart."""
        return q % size.c, q // (step * size.c), q // size.c % step

    g, h = (table(f"G{n}", side.taps, use.factor) for n, side in enumerate((use.down, use.across)))
    r, s = reduce_axis(taps(size), "r"), reduce_axis(taps(size), "s")

    def tap(k: Expr, q: Expr) -> Expr:
        if step == 1:
            return weight[k, q, r, s]
        c, row, column = phase(q)
        at = r.var * step + row, s.var * step + column
        return read(weight, (k, c, *at), when=(at[0] < size.r) & (at[1] < size.s) if size.r % step else None)

    u = compute(
        (*edge, size.k, inner),
        lambda xi, nu, k, c: sum_(g(xi, r) * cast(use.factor, tap(k, c)) * h(nu, s), (r, s)),
        name="wino_u",
    )

    def down(name: str, matrix: Matrix, image: Callable[..., Expr], channels: int, dtype: DType) -> Tensor:
        """Columns of the tiles by the rows of a matrix."""
        at, i = table(f"{name}_m", matrix, dtype), reduce_axis(len(matrix[0]), "i")
        shape = (size.n, channels, rows, columns, len(matrix), edge[1])
        return compute(shape, lambda n, k, th, tw, xi, nu: sum_(at(xi, i) * image(n, k, th, tw, i, nu), i), name=name)

    def across(name: str, matrix: Matrix, image: Tensor) -> Tensor:
        """Rows of the tiles by the rows of a matrix."""
        at, j = table(f"{name}_m", matrix, image.dtype), reduce_axis(len(matrix[0]), "j")
        shape = (*image.shape[:5], len(matrix))
        return compute(shape, lambda n, k, th, tw, xi, nu: sum_(at(nu, j) * image[n, k, th, tw, xi, j], j), name=name)

    def of(tensor: Tensor) -> Callable[..., Expr]:
        return lambda *at: tensor[at]

    over = (
        overhang(size.h, rows, edge[0] * step, tile.rows * step, 1, top),
        overhang(size.w, columns, edge[1] * step, tile.columns * step, 1, left),
    )
    if step > 1:
        apart = compute(
            (size.n, inner, (rows - 1) * tile.rows + edge[0], (columns - 1) * tile.columns + edge[1]),
            lambda n, q, i, j: image_element(
                x, n, phase(q)[0], (i * step + phase(q)[1] - top, j * step + phase(q)[2] - left), over, size.pad_value
            ),
            name="wino_x",
        )

    def pixel(n: Expr, c: Expr, th: Expr, tw: Expr, i: Axis, j: Expr) -> Expr:
        at = th * tile.rows + i.var, tw * tile.columns + j
        if step > 1:
            return cast(use.factor, apart[(n, c, *at)])
        return cast(use.factor, image_element(x, n, c, (at[0] - top, at[1] - left), over, size.pad_value))

    (signs, parts), (signs_across, parts_across) = use.down.inputs, use.across.inputs
    t = down("wino_t", signs, of(down("wino_tp", parts, pixel, inner, use.factor)), inner, use.factor)
    v = across("wino_v", signs_across, across("wino_vp", parts_across, t))
    c = reduce_axis(inner, "c")
    products = compute(
        (size.n, size.k, rows, columns, *edge),
        lambda n, k, th, tw, xi, nu: sum_(
            cast(use.total, u[xi, nu, k, c]) * cast(use.total, v[n, c, th, tw, xi, nu]), c
        ),
        name="wino_m",
    )
    (sums, weights), (sums_across, weights_across) = use.down.products, use.across.products
    part = down("wino_sp", transposed(sums), of(products), size.k, use.total)
    half = down("wino_s", transposed(weights), of(part), size.k, use.total)
    y = across("wino_y", transposed(weights_across), across("wino_yp", transposed(sums_across), half))
    return compute(
        (size.n, size.k, size.oh, size.ow),
        lambda n, k, oh, ow: use.output(
            y[n, k, oh // tile.rows, ow // tile.columns, oh % tile.rows, ow % tile.columns]
        ),
        name="conv",
    )


def _count(name: str, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> int | None:
    size, tile = Conv.of("conv2d", types[0].shape, types[1].shape, attrs), TILES[name]
    return multiplications(size, tile) if DType(types[0].dtype).is_float and applies(size, tile) else None


for _name, _tile in TILES.items():
    algorithm(
        "conv2d",
        _name,
        multiplications=functools.partial(_count, _name),
        error=functools.partial(most_error, _tile),
        strict=False,
    )(functools.partial(_winograd, _name))
