"""Winograd's minimal filtering F(m x m, 3 x 3): the same convolution with fewer multiplications (Lavin, CVPR 2016).

Tiles of m x m outputs are computed from (m+2) x (m+2) inputs in a transformed domain, where the sum over channels
is a batch of matrix products. The transforms' matrices are tables: unrolled, their zeros and ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.ops.checks import floating, require, same_dtype
from autotune.ops.conv import Conv
from autotune.ops.precision import accumulator
from autotune.ops.registry import algorithm
from autotune.ops.window import image_element, overhang
from autotune.tensor.expr import Expr, cast
from autotune.tensor.stage import Axis, Tensor, compute, reduce_axis, sum_, table

Matrix = tuple[tuple[float, ...], ...]

# Interpolation points 0, 1, -1 and infinity.
F2: dict[str, Matrix] = {
    "BT": ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    "G": ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    "AT": ((1, 1, 1, 0), (0, 1, -1, -1)),
}
# Interpolation points 0, 1, -1, 2, -2 and infinity.
F4: dict[str, Matrix] = {
    "BT": (
        (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0), (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    "G": (
        (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6), (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
    ),
    "AT": ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}  # fmt: skip
# Interpolation points 0, 1, -1, 2, -2, 1/2, -1/2 and infinity.
F6: dict[str, Matrix] = {
    "BT": (
        (1, 0, -21 / 4, 0, 21 / 4, 0, -1, 0), (0, 1, 1, -17 / 4, -17 / 4, 1, 1, 0),
        (0, -1, 1, 17 / 4, -17 / 4, -1, 1, 0), (0, 1 / 2, 1 / 4, -5 / 2, -5 / 4, 2, 1, 0),
        (0, -1 / 2, 1 / 4, 5 / 2, -5 / 4, -2, 1, 0), (0, 2, 4, -5 / 2, -5, 1 / 2, 1, 0),
        (0, -2, 4, 5 / 2, -5, -1 / 2, 1, 0), (0, -1, 0, 21 / 4, 0, -21 / 4, 0, 1),
    ),
    "G": (
        (1, 0, 0), (-2 / 9, -2 / 9, -2 / 9), (-2 / 9, 2 / 9, -2 / 9), (1 / 90, 1 / 45, 2 / 45),
        (1 / 90, -1 / 45, 2 / 45), (32 / 45, 16 / 45, 8 / 45), (32 / 45, -16 / 45, 8 / 45), (0, 0, 1),
    ),
    "AT": (
        (1, 1, 1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 1 / 2, -1 / 2, 0), (0, 1, 1, 4, 4, 1 / 4, 1 / 4, 0),
        (0, 1, -1, 8, -8, 1 / 8, -1 / 8, 0), (0, 1, 1, 16, 16, 1 / 16, 1 / 16, 0),
        (0, 1, -1, 32, -32, 1 / 32, -1 / 32, 1),
    ),
}  # fmt: skip


@algorithm("conv2d", "winograd_f2")
def winograd_f2(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Tiles of 2 x 2 outputs: 2.25 times fewer multiplications, errors like the direct sum's."""
    return _winograd(inputs, attrs, F2)


@algorithm("conv2d", "winograd_f4")
def winograd_f4(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Tiles of 4 x 4 outputs: 4 times fewer multiplications, errors some ten times larger."""
    return _winograd(inputs, attrs, F4)


@algorithm("conv2d", "winograd_f6")
def winograd_f6(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Tiles of 6 x 6 outputs: 5.06 times fewer multiplications, errors up to twice those of 4 x 4."""
    return _winograd(inputs, attrs, F6)


def applies(size: Conv) -> bool:
    """Whether Winograd computes this convolution: 3 x 3, stride 1, dilation 1, one group."""
    return (size.window, size.stride, size.dilation, size.groups) == ((3, 3), (1, 1), (1, 1), 1)


def halves(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """Two sparse factors, signs and parts, whose product is `matrix` (a x b): (a x a) and (a x b).

    Rows of opposite interpolation points differ in the signs of every other element; their even and odd parts are
    computed once, then added and subtracted.
    """
    signs, parts = [list(row) for row in _identity(len(matrix))], [list(map(float, row)) for row in matrix]
    for i in range(len(matrix) - 1):
        first, second = matrix[i], matrix[i + 1]
        opposite = all(abs(x) == abs(y) for x, y in zip(first, second, strict=True))
        if opposite and signs[i][i - 1] == 0:
            parts[i] = [(x + y) / 2 for x, y in zip(first, second, strict=True)]
            parts[i + 1] = [(x - y) / 2 for x, y in zip(first, second, strict=True)]
            signs[i][i + 1], signs[i + 1][i], signs[i + 1][i + 1] = 1.0, 1.0, -1.0
    return tuple(map(tuple, signs)), tuple(map(tuple, parts))


def _identity(size: int) -> Matrix:
    return tuple(tuple(float(i == j) for j in range(size)) for i in range(size))


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def _winograd(inputs: Sequence[Tensor], attrs: Mapping[str, Any], matrices: Mapping[str, Matrix]) -> Tensor:
    """The stages wino_u (constants only), wino_tp, wino_t, wino_vp, wino_v, wino_m, wino_sp, wino_s, wino_yp, wino_y
    and conv: weights; inputs down and across the tile; products; outputs down and across. `p` is the sparse first
    half of a transform."""
    x, weight = inputs
    same_dtype("conv2d", inputs)
    size = Conv.of("conv2d", x.shape, weight.shape, attrs)
    floating("conv2d winograd", x)
    require(applies(size), "conv2d: winograd needs a 3x3 kernel with stride 1, dilation 1 and groups 1")
    total = accumulator(x.dtype)
    signs, parts = halves(matrices["BT"])
    sums, weights = halves(_transposed(matrices["AT"]))
    a, m = len(matrices["BT"]), len(matrices["AT"])
    rows, columns = -(-size.oh // m), -(-size.ow // m)
    top, left = size.pad[:2]
    sides = overhang(size.h, rows, a, m, 1, top), overhang(size.w, columns, a, m, 1, left)

    g = table("G", matrices["G"], total)
    r, s = reduce_axis(3, "r"), reduce_axis(3, "s")
    u = compute(
        (a, a, size.k, size.c),
        lambda xi, nu, k, c: sum_(g(xi, r) * cast(total, weight[k, c, r, s]) * g(nu, s), (r, s)),
        name="wino_u",
    )

    def down(name: str, matrix: Matrix, image: Callable[..., Expr], channels: int) -> Tensor:
        """Columns of the tiles by the rows of a matrix."""
        at, i = table(f"{name}_m", matrix, total), reduce_axis(len(matrix[0]), "i")
        shape = (size.n, channels, rows, columns, len(matrix), a)
        return compute(shape, lambda n, k, th, tw, xi, nu: sum_(at(xi, i) * image(n, k, th, tw, i, nu), i), name=name)

    def across(name: str, matrix: Matrix, image: Tensor) -> Tensor:
        """Rows of the tiles by the rows of a matrix."""
        at, j = table(f"{name}_m", matrix, total), reduce_axis(len(matrix[0]), "j")
        shape = (*image.shape[:5], len(matrix))
        return compute(shape, lambda n, k, th, tw, xi, nu: sum_(at(nu, j) * image[n, k, th, tw, xi, j], j), name=name)

    def pixel(n: Expr, c: Expr, th: Expr, tw: Expr, i: Axis, j: Expr) -> Expr:
        return cast(total, image_element(x, n, c, (th * m + i.var - top, tw * m + j - left), sides))

    def of(tensor: Tensor) -> Callable[..., Expr]:
        return lambda *at: tensor[at]

    t = down("wino_t", signs, of(down("wino_tp", parts, pixel, size.c)), size.c)
    v = across("wino_v", signs, across("wino_vp", parts, t))
    c = reduce_axis(size.c, "c")
    products = compute(
        (size.n, size.k, rows, columns, a, a),
        lambda n, k, th, tw, xi, nu: sum_(u[xi, nu, k, c] * v[n, c, th, tw, xi, nu], c),
        name="wino_m",
    )
    half = down("wino_s", _transposed(weights), of(down("wino_sp", _transposed(sums), of(products), size.k)), size.k)
    y = across("wino_y", _transposed(weights), across("wino_yp", _transposed(sums), half))
    return compute(
        (size.n, size.k, size.oh, size.ow),
        lambda n, k, oh, ow: cast(x.dtype, y[n, k, oh // m, ow // m, oh % m, ow % m]),
        name="conv",
    )
