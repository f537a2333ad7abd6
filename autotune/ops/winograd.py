"""Winograd's minimal filtering F(m x m, r x r): the same convolution with fewer multiplications (Lavin, CVPR 2016).

Tiles of m x m outputs are computed from (m+r-1) x (m+r-1) inputs in a transformed domain, where the sum over channels
is a batch of matrix products. The transforms' matrices are tables: unrolled, their zeros and ones cost nothing.

With a stride the image is taken apart: every stride-th row and column, once from each start, are channels of their own,
and so are the taps that they meet. That leaves a convolution without stride, of fewer taps over more channels.

A volume is images one behind the other. Each is transformed once, and taps along the depth are more terms of the sums
over channels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from autotune.ops.checks import floating, require, same_dtype
from autotune.ops.conv import MOST_POINTS, Conv
from autotune.ops.precision import accumulator
from autotune.ops.registry import algorithm
from autotune.ops.window import image_element, overhang, position
from autotune.ops.winograd_transforms import Matrix, halves, transforms
from autotune.ops.workload import TensorType
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, cast, const, read
from autotune.tensor.rounding import sum_error, terms_of_a_part
from autotune.tensor.stage import Axis, Tensor, compute, reduce_axis, sum_, table

MOST = {2: 4, 4: MOST_POINTS, 5: MOST_POINTS, 6: MOST_POINTS}
"""Points of a transformed tile along one side, at most, by m: errors of tiles of 2 x 2 stay like the direct sum's."""


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

OPERATORS = ("conv2d", "conv3d")
"""Whose algorithms they are."""


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


class Depth(NamedTuple):
    """The images of a volume; of one that has no depth, itself.

    Attributes:
        images: how many windows read, padding included; those between them where the depth has taps but no others.
        outputs: images of the result.
        taps: along the depth.
        unit, front: image i lies at depth `i * unit - front`.
        stride, dilation: images between neighbouring outputs, and between neighbouring taps.
        overhang: whether there is padding before the volume, and behind it.
    """

    images: int
    outputs: int
    taps: int
    unit: int
    front: int
    stride: int
    dilation: int
    overhang: tuple[bool, bool]

    @staticmethod
    def of(size: Conv) -> Depth:
        if size.rank < 3:
            return Depth(1, 1, 1, 1, 0, 1, 1, (False, False))
        outputs, many, stride, dilation = size.out[0], size.window[0], size.stride[0], size.dilation[0]
        front, sides = size.pad[0], size.sides[0]
        if many == 1:
            return Depth(outputs, outputs, 1, stride, front, 1, 1, sides)
        images = (outputs - 1) * stride + (many - 1) * dilation + 1
        return Depth(images, outputs, many, 1, front, stride, dilation, sides)


def taps(size: Conv) -> int:
    """Taps along one side that are left of a square window when its stride, the same both ways, is taken apart."""
    return -(-size.r // size.stride[-1])


def channels(size: Conv) -> int:
    """Channels of the image taken apart."""
    return size.c * math.prod(size.stride[-2:])


def terms(size: Conv) -> int:
    """Products that are summed to one of the transformed results."""
    return channels(size) * Depth.of(size).taps


def flat(size: Conv) -> Conv:
    """The convolution of as many images as a volume has results, which has no depth."""
    if size.rank < 3:
        return size
    return replace(
        size, n=size.n * size.out[0], image=size.image[1:], window=size.window[1:], out=size.out[1:],
        stride=size.stride[1:], pad=(*size.pad[1:3], *size.pad[4:]), dilation=size.dilation[1:],
    )  # fmt: skip


def edges(size: Conv, tile: Tile) -> tuple[int, int]:
    """Points down and across a transformed tile."""
    return tile.rows + taps(size) - 1, tile.columns + taps(size) - 1


def apart(size: Conv) -> Conv:
    """The convolution of images that is left when stride and depth are taken apart, whose channels are the terms; of
    its image, what is read, padding included."""
    size, many = replace(flat(size), c=size.c * Depth.of(size).taps), taps(size)
    if set(size.stride) == {1}:
        return size
    image = tuple(extent + many - 1 for extent in size.out)
    return replace(size, c=channels(size), image=image, window=(many, many), stride=(1, 1), pad=(0, 0, 0, 0))


def applies(size: Conv, tile: Tile) -> bool:
    """Whether such tiles compute this convolution: images, square windows of them, dense, and points enough, which are
    no more than it allows."""
    square = size.rank > 1 and size.r == size.s and size.stride[-2] == size.stride[-1]
    dense = set(size.dilation[-2:]) == {1} and size.groups == 1
    return square and dense and 1 < taps(size) <= most_taps(tile) and max(edges(size, tile)) <= size.points


def most_taps(tile: Tile) -> int:
    """Taps along one side, at most, for which there are points enough."""
    return min(MOST[m] + 1 - m for m in tile)


@functools.cache
def amplification(tile: Tile, taps: int) -> float:
    """How many times larger than in the products of transforms rounding errors are in the outputs.

    The products' sums are taps² times shorter than a direct convolution's, so they err taps times less.
    """
    return math.sqrt(math.prod(transforms(m, taps).amplification for m in tile))


def error(size: Conv, tile: Tile) -> float:
    """Root mean square error of a result by that of the result itself, as expected of f32."""
    amplified = amplification(tile, taps(size))
    return sum_error(max(1, terms(size)), amplified, terms_of_a_part(amplified))


@functools.cache
def most_error(tile: Tile) -> float:
    """How many times the direct sum's errors such tiles may make: those of the window that they amplify most."""
    return max(1.0, *(amplification(tile, taps) / taps for taps in range(2, most_taps(tile) + 1)))


def multiplications(size: Conv, tile: Tile) -> int:
    """Of whole tiles."""
    tiles = -(-size.oh // tile.rows) * -(-size.ow // tile.columns)
    return flat(size).n * size.k * terms(size) * tiles * math.prod(edges(size, tile))


def transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def _in_floats(size: Conv, tile: Tile, data: DType) -> Arithmetic:
    """Transforms and products in the floats that such data is summed up in."""
    total = accumulator(data)
    down, across = (
        Side(t.G, halves(t.BT, monic=True), halves(transposed(t.AT))) for t in (transforms(m, taps(size)) for m in tile)
    )
    return Arithmetic(total, total, down, across, lambda y: cast(data, y))


@dataclass(frozen=True)
class Factors:
    """What is multiplied: transformed windows by transformed tiles, each element (xi, nu) by itself.

    Attributes:
        edge: rows and columns of both.
        window: of an element (xi, nu) and a filter, what the tap (r, s) of each term adds.
        taps: r and s; `along`: the axes of the terms, the channel last.
        halfway: the tiles (image, channel, row, column, xi, j) but for their rows' last transform, `signs` of (nu, j).
        image: which one a result reads, at a tap along the depth.
        filters, results: how many there are. `amplified`: errors of the products, as `Stage.amplified`.
    """

    edge: tuple[int, int]
    window: Callable[..., Expr]
    taps: tuple[Axis, Axis]
    along: tuple[Axis, ...]
    halfway: Tensor
    signs: Matrix
    image: Callable[[Expr], Expr]
    filters: int
    results: int
    use: Arithmetic
    amplified: float


Multiply = Callable[[Factors], Callable[..., Expr]]
"""Makes the products (result, filter, row and column of tiles, xi, nu)."""


def tile_by_tile(f: Factors) -> Callable[..., Expr]:
    """The stages wino_u, wino_v and wino_m: elements of tiles lie where these do."""
    *_, rows, columns, _, _ = f.halfway.shape
    u = compute(
        (*f.edge, f.filters, *(axis.extent for axis in f.along)),
        lambda xi, nu, k, *term: sum_(f.window(xi, nu, k, term, *(tap.var for tap in f.taps)), f.taps),
        name="wino_u",
    )
    v = across("wino_v", f.signs, f.halfway)
    total = f.use.total
    m = compute(
        (f.results, f.filters, rows, columns, *f.edge),
        lambda n, k, th, tw, xi, nu: sum_(
            cast(total, u[(xi, nu, k, *f.along)]) * cast(total, v[f.image(n), f.along[-1], th, tw, xi, nu]), f.along
        ),
        name="wino_m",
        amplified=f.amplified,
    )
    return lambda *at: m[at]


def across(name: str, matrix: Matrix, tiles: Tensor) -> Tensor:
    """Rows of tiles (image, channel, row, column, xi, j) by the rows of a matrix."""
    at, j = table(f"{name}_m", matrix, tiles.dtype), reduce_axis(len(matrix[0]), "j")
    shape = (*tiles.shape[:5], len(matrix))
    return compute(shape, lambda n, k, th, tw, xi, nu: sum_(at(nu, j) * tiles[n, k, th, tw, xi, j], j), name=name)


def convolved(
    x: Tensor, weight: Tensor, size: Conv, tile: Tile, use: Arithmetic, multiply: Multiply = tile_by_tile
) -> Tensor:
    """The stages wino_x (with a stride only), wino_tp, wino_t, wino_vp, those of the products (weights wino_u, inputs
    wino_v, products wino_m), wino_sp, wino_s, wino_yp, wino_y and conv: the image taken apart; inputs down and across
    the tile; outputs down and across. `p` is the sparse first half of a transform."""
    edge, step, inner, depth = edges(size, tile), size.stride[-1], channels(size), Depth.of(size)
    rows, columns = -(-size.oh // tile.rows), -(-size.ow // tile.columns)
    (top, left), results = flat(size).pad[:2], flat(size).n

    def phase(q: Expr) -> tuple[Expr, Expr, Expr]:
        """Channel, first row and first column of channel q of the image taken apart."""
        return q % size.c, q // (step * size.c), q // size.c % step

    wide = use.total if use.factor.is_float else use.factor  # in which tiles and windows are transformed
    g, h = (table(f"G{n}", side.taps, wide) for n, side in enumerate((use.down, use.across)))
    r, s, c = reduce_axis(taps(size), "r"), reduce_axis(taps(size), "s"), reduce_axis(inner, "c")
    along = [reduce_axis(depth.taps, "q")] if depth.taps > 1 else []
    lone = [const(0, DType.i64)] if size.rank > 2 and not along else []

    def tap(k: Expr, channel: Expr, deep: Sequence[Expr], r: Expr, s: Expr) -> Expr:
        before = [*deep, *lone]
        if step == 1:
            return weight[(k, channel, *before, r, s)]
        c, row, column = phase(channel)
        at = r * step + row, s * step + column
        known = (at[0] < size.r) & (at[1] < size.s) if size.r % step else None
        return read(weight, (k, c, *before, *at), when=known)

    def window(xi: Expr, nu: Expr, k: Expr, term: Sequence[Expr], r: Expr, s: Expr) -> Expr:
        """What a tap of a filter adds to an element of the transformed window."""
        return g(xi, r) * cast(wide, tap(k, term[-1], term[:-1], r, s)) * h(nu, s)

    def down(name: str, matrix: Matrix, image: Callable[..., Expr], many: tuple[int, int], dtype: DType) -> Tensor:
        """Columns of the tiles of `many` (images, channels) by the rows of a matrix."""
        at, i = table(f"{name}_m", matrix, dtype), reduce_axis(len(matrix[0]), "i")
        shape = (*many, rows, columns, len(matrix), edge[1])
        return compute(
            shape, lambda n, k, th, tw, xi, nu: sum_(at(xi, i) * image(n, k, th, tw, i.var, nu), i), name=name
        )

    def of(tensor: Tensor) -> Callable[..., Expr]:
        return lambda *at: tensor[at]

    over = (
        *([depth.overhang] if size.rank > 2 else []),
        overhang(size.h, rows, edge[0] * step, tile.rows * step, 1, top),
        overhang(size.w, columns, edge[1] * step, tile.columns * step, 1, left),
    )

    def element(i: Expr, channel: Expr, row: Expr, column: Expr) -> Expr:
        """Of image i of all volumes."""
        if size.rank < 3:
            return image_element(x, i, channel, (row, column), over, size.pad_value)
        at = position(i % depth.images, depth.unit, const(0, DType.i64), 1, depth.front)
        return image_element(x, i // depth.images, channel, (at, row, column), over, size.pad_value)

    def image(result: Expr) -> Expr:
        """Which one a result reads at a tap along the depth."""
        if not along:
            return result
        first = result // depth.outputs * depth.images
        return first + position(result % depth.outputs, depth.stride, along[0].var, depth.dilation, 0)

    images = size.n * depth.images
    if step > 1:
        apart = compute(
            (images, inner, (rows - 1) * tile.rows + edge[0], (columns - 1) * tile.columns + edge[1]),
            lambda n, q, i, j: element(n, phase(q)[0], i * step + phase(q)[1] - top, j * step + phase(q)[2] - left),
            name="wino_x",
        )

    def pixel(n: Expr, c: Expr, th: Expr, tw: Expr, i: Expr, j: Expr) -> Expr:
        at = th * tile.rows + i, tw * tile.columns + j
        if step > 1:
            return cast(wide, apart[(n, c, *at)])
        return cast(wide, element(n, c, at[0] - top, at[1] - left))

    (signs, parts), (signs_across, parts_across) = use.down.inputs, use.across.inputs
    given, made = (images, inner), (results, size.k)
    t = down("wino_t", signs, of(down("wino_tp", parts, pixel, given, wide)), given, wide)
    factors = Factors(
        edge, window, (r, s), (*along, c), across("wino_vp", parts_across, t), signs_across, image, *made[::-1], use,
        amplification(tile, taps(size)) if use.total.is_float else 1.0,
    )  # fmt: skip
    products = multiply(factors)
    (sums, weights), (sums_across, weights_across) = use.down.products, use.across.products
    part = down("wino_sp", transposed(sums), products, made, use.total)
    half = down("wino_s", transposed(weights), of(part), made, use.total)
    y = across("wino_y", transposed(weights_across), across("wino_yp", transposed(sums_across), half))

    def output(n: Expr, k: Expr, *at: Expr) -> Expr:
        *deep, oh, ow = at
        result = n * depth.outputs + deep[0] if deep else n
        return use.output(y[result, k, oh // tile.rows, ow // tile.columns, oh % tile.rows, ow % tile.columns])

    return compute((size.n, size.k, *size.out), output, name="conv")


def allowed(size: Conv, tile: Tile, rounds: DType | None = None) -> bool:
    """Whether such tiles compute this convolution, and may be rounded so when they are transformed."""
    points = size.points if rounds is None else size.rounded
    return applies(size, tile) and max(edges(size, tile)) <= points


def register(name: str, tile: Tile, multiply: Multiply, rounds: DType | None = None) -> None:
    """Make an algorithm of convolutions of floats by such tiles.

    Args:
        multiply: how the products are made. `rounds`: to what their factors are rounded, if they are.
    """

    def winograd(op: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        x, weight = inputs
        same_dtype(op, inputs)
        size = Conv.of(op, x.shape, weight.shape, attrs)
        floating(f"{op} winograd", x)
        require(
            allowed(size, tile, rounds),
            f"{op}: {name} needs a square kernel of 2 to {most_taps(tile)} taps per stride, the same stride both ways, "
            f"dilation 1, groups 1, and as many points as its tiles have; points={size.points}, rounded={size.rounded}",
        )
        use = _in_floats(size, tile, x.dtype)
        return convolved(x, weight, size, tile, use._replace(factor=rounds or use.factor), multiply)

    def count(op: str, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> int | None:
        size = Conv.of(op, types[0].shape, types[1].shape, attrs)
        able = DType(types[0].dtype).is_float and allowed(size, tile, rounds)
        return multiplications(size, tile) if able else None

    for op in OPERATORS:
        algorithm(
            op,
            name,
            multiplications=functools.partial(count, op),
            error=functools.partial(most_error, tile),
            strict=False,
            factor=rounds,
            prepared=() if rounds is None else (1,),
            rounds=rounds,
        )(functools.partial(winograd, op))


for _name, _tile in TILES.items():
    register(_name, _tile, tile_by_tile)
