"""Winograd's minimal filtering F(m x m, 3 x 3): the same convolution with fewer multiplications (Lavin, CVPR 2016).

Tiles of m x m outputs are computed from (m+2) x (m+2) inputs in a transformed domain, where the sum over channels
is a batch of matrix products. The transforms' matrices are tables: unrolled, their zeros and ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import floating, require, same_dtype
from autotune.ops.conv import Conv
from autotune.ops.precision import accumulator
from autotune.ops.registry import algorithm
from autotune.ops.window import image_element, overhang
from autotune.tensor.expr import cast
from autotune.tensor.stage import Tensor, compute, reduce_axis, sum_, table

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


@algorithm("conv2d", "winograd_f2")
def winograd_f2(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Tiles of 2 x 2 outputs: 2.25 times fewer multiplications, errors like the direct sum's."""
    return _winograd(inputs, attrs, F2)


@algorithm("conv2d", "winograd_f4")
def winograd_f4(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Tiles of 4 x 4 outputs: 4 times fewer multiplications, errors some ten times larger."""
    return _winograd(inputs, attrs, F4)


def applies(size: Conv) -> bool:
    """Whether Winograd computes this convolution: 3 x 3, stride 1, dilation 1, one group."""
    return (size.window, size.stride, size.dilation, size.groups) == ((3, 3), (1, 1), (1, 1), 1)


def _winograd(inputs: Sequence[Tensor], attrs: Mapping[str, Any], matrices: Mapping[str, Matrix]) -> Tensor:
    """The stages wino_u (constants only), wino_t, wino_v, wino_m, wino_s, wino_y and conv."""
    x, weight = inputs
    same_dtype("conv2d", inputs)
    size = Conv.of("conv2d", x.shape, weight.shape, attrs)
    floating("conv2d winograd", x)
    require(applies(size), "conv2d: winograd needs a 3x3 kernel with stride 1, dilation 1 and groups 1")
    total = accumulator(x.dtype)
    bt, g, at = (table(name, matrices[name], total) for name in ("BT", "G", "AT"))
    a, m = len(matrices["BT"]), len(matrices["AT"])
    rows, columns = -(-size.oh // m), -(-size.ow // m)
    top, left = size.pad[:2]
    sides = overhang(size.h, rows, a, m, 1, top), overhang(size.w, columns, a, m, 1, left)

    r, s = reduce_axis(3, "r"), reduce_axis(3, "s")
    u = compute(
        (a, a, size.k, size.c),
        lambda xi, nu, k, c: sum_(g(xi, r) * cast(total, weight[k, c, r, s]) * g(nu, s), (r, s)),
        name="wino_u",
    )
    i, j = reduce_axis(a, "i"), reduce_axis(a, "j")
    tiles = (size.n, size.c, rows, columns)
    t = compute(
        (*tiles, a, a),
        lambda n, c, th, tw, xi, j: sum_(
            bt(xi, i) * cast(total, image_element(x, n, c, (th * m + i.var - top, tw * m + j - left), sides)), i
        ),
        name="wino_t",
    )
    v = compute((*tiles, a, a), lambda n, c, th, tw, xi, nu: sum_(t[n, c, th, tw, xi, j] * bt(nu, j), j), name="wino_v")
    c = reduce_axis(size.c, "c")
    products = compute(
        (size.n, size.k, rows, columns, a, a),
        lambda n, k, th, tw, xi, nu: sum_(u[xi, nu, k, c] * v[n, c, th, tw, xi, nu], c),
        name="wino_m",
    )
    xi_, nu_ = reduce_axis(a, "xi"), reduce_axis(a, "nu")
    half = compute(
        (size.n, size.k, rows, columns, m, a),
        lambda n, k, th, tw, p, nu: sum_(at(p, xi_) * products[n, k, th, tw, xi_, nu], xi_),
        name="wino_s",
    )
    y = compute(
        (size.n, size.k, rows, columns, m, m),
        lambda n, k, th, tw, p, q: sum_(half[n, k, th, tw, p, nu_] * at(q, nu_), nu_),
        name="wino_y",
    )
    return compute(
        (size.n, size.k, size.oh, size.ow),
        lambda n, k, oh, ow: cast(x.dtype, y[n, k, oh // m, ow // m, oh % m, ow % m]),
        name="conv",
    )
