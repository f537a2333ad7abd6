"""Strassen's product of matrices (Numerische Mathematik 1969), one level: seven products of halves instead of eight.

Both operands and the result are cut in two both ways. Each of seven products is that of a sum of quarters of `a` and a
sum of quarters of `b`; the result's quarters are sums of products. Sums of a weight's quarters are made once and for
all. Of bytes, sums of two have 16 bits, of which one instruction multiplies pairs, and nothing is ever rounded: what
overflows on the way does so modulo 2^32, as sums of products do anyway.

A convolution with windows of one pixel is the product of the pixels that it reads and a matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.ops.checks import factors, require
from autotune.ops.conv import CONVOLUTIONS, Conv
from autotune.ops.registry import algorithm
from autotune.ops.workload import TensorType
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, as_expr, cast, read
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_, table

NAMES = {"strassen": (DType.f32, DType.f32), "strassen_exact": (DType.i16, DType.i32)}
"""The algorithms: types of what is multiplied and of what is added up."""

OPERATORS = ("matmul", *CONVOLUTIONS)
"""Whose algorithms they are."""

LEFT, RIGHT, PRODUCTS, QUARTERS = "strassen_v", "strassen_u", "strassen_m", "strassen_y"
"""The stages that hold sums of quarters of `a` and of `b`, their products, and the result's quarters."""

A = ((1, 0, 0, 1), (0, 0, 1, 1), (1, 0, 0, 0), (0, 0, 0, 1), (1, 1, 0, 0), (-1, 0, 1, 0), (0, 1, 0, -1))
"""What each product takes of the quarters of `a`, row by row of them."""
B = ((1, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, -1), (-1, 0, 1, 0), (0, 0, 0, 1), (1, 1, 0, 0), (0, 0, 1, 1))
"""And of `b`."""
C = ((1, 0, 0, 1, -1, 0, 1), (0, 0, 1, 0, 1, 0, 0), (0, 1, 0, 1, 0, 0, 0), (1, -1, 1, 0, 0, 1, 0))
"""What each quarter of the result takes of the products."""


def amplification() -> float:
    """How many times larger than those of the plain sum rounding errors are, of operands of either sign, in the quarter
    that has the larger ones: a product of sums of x and y quarters errs x * y times as much in square, and its sum is
    half as long."""
    each = [sum(map(abs, a)) * sum(map(abs, b)) for a, b in zip(A, B, strict=True)]
    return max(math.sqrt(sum(abs(c) * n for c, n in zip(row, each, strict=True)) / 4) for row in C)


@dataclass(frozen=True, slots=True)
class Product:
    """A product of matrices: `batch` times (rows, inner) by the same (inner, columns).

    Attributes:
        image: extents of which the rows are made, the pixels of the result; of a matrix the rows.
    """

    batch: tuple[int, ...]
    image: tuple[int, ...]
    inner: int
    columns: int

    @property
    def rows(self) -> int:
        return math.prod(self.image)

    @property
    def halves(self) -> tuple[int, int, int]:
        """Rows, terms and columns of a quarter; half a row more where they are odd."""
        return -(-self.rows // 2), self.inner // 2, self.columns // 2

    @property
    def multiplications(self) -> int:
        return len(A) * math.prod((*self.batch, *self.halves))


def product_of(op: str, name: str, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> Product | None:
    """The product that an operator computes, if it can be cut: of right types, by one matrix for all of the batch, and
    even where nothing is added."""
    (a, b), factor = types[:2], NAMES[name][0]
    known = {DType.f32} if factor.is_float else {DType.u8, DType.i8}
    if not {DType(a.dtype), DType(b.dtype)} <= known:
        return None
    found = _of_matrices(a.shape, b.shape, attrs) if op == "matmul" else _of_pixels(op, a.shape, b.shape, attrs)
    if found is None or found.rows < 2 or found.inner % 2 or found.columns % 2:
        return None
    return found if min(found.inner, found.columns, *found.batch, 1) > 0 else None


def _of_matrices(a: tuple[int, ...], b: tuple[int, ...], attrs: Mapping[str, Any]) -> Product | None:
    if len(a) < 2 or len(b) != 2 or attrs.get("trans_a"):
        return None
    inner, columns = b[::-1] if attrs.get("trans_b") else b
    return Product(a[:-2], a[-2:-1], inner, columns)


def _of_pixels(op: str, x: tuple[int, ...], weight: tuple[int, ...], attrs: Mapping[str, Any]) -> Product | None:
    size = Conv.of(op, x, weight, attrs)
    lone = {*size.window, size.groups} == {1} and set(size.pad) == {0}
    return Product((size.n,), size.out, size.c, size.k) if lone else None


def _product(op: str, name: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    a, b = inputs
    factors(op, a, b)
    size = product_of(op, name, [TensorType(t.dtype.value, t.shape) for t in (a, b)], attrs)
    require(
        size is not None,
        f"{op}: {name} needs {'floats of 32 bits' if name == 'strassen' else 'bytes'}, two rows or pixels at least, "
        "and one matrix of an even number of rows and columns, or such windows of one pixel",
    )
    assert size is not None
    if op == "matmul":
        swapped = bool(attrs.get("trans_b"))

        def row(lead: Sequence[Expr], i: Expr, k: Expr, within: Expr | None) -> Expr:
            return read(a, (*lead, i, k), when=within)

        def weight(k: Expr, j: Expr) -> Expr:
            return b[(j, k) if swapped else (k, j)]

        quarter = _quarters(name, size, row, weight)
        return compute((*size.batch, size.rows, size.columns), lambda *at: quarter(at[:-2], at[-2], at[-1]), op)
    lone = [as_expr(0, DType.i64)] * len(size.image)
    stride = Conv.of(op, a.shape, b.shape, attrs).stride

    def pixel(lead: Sequence[Expr], i: Expr, k: Expr, within: Expr | None) -> Expr:
        at = list[Expr]()
        for d, (extent, step) in reversed(list(enumerate(zip(size.image, stride, strict=True)))):
            at.insert(0, (i % extent if d else i) * step)
            i = i // extent
        return read(a, (*lead, k, *at), when=within)

    quarter = _quarters(name, size, pixel, lambda k, j: b[(j, k, *lone)])

    def result(n: Expr, k: Expr, *at: Expr) -> Expr:
        place, *rest = at
        for position, extent in zip(rest, size.image[1:], strict=True):
            place = place * extent + position
        return quarter((n,), place, k)

    return compute((*size.batch, size.columns, *size.image), result, "conv")


def _quarters(
    name: str,
    size: Product,
    left: Callable[[Sequence[Expr], Expr, Expr, Expr | None], Expr],
    right: Callable[[Expr, Expr], Expr],
) -> Callable[[Sequence[Expr], Expr, Expr], Expr]:
    """The stages strassen_u (of constants only), strassen_v, strassen_m and strassen_y; an element of the result.

    Args:
        left: an element of `a`: batch, row, term, and whether there is that row. `right`: of `b`: term, column.
    """
    factor, total = NAMES[name]
    of_a, of_b, of_c = (
        table(f"strassen_{which}", rows, use)
        for which, rows, use in (("a", A, factor), ("b", B, factor), ("c", C, total))
    )
    m, k, n = size.halves
    names = [f"b{d}" for d in range(len(size.batch))]

    def sums(p: Expr, *at: Expr) -> Reduction:
        *lead, i, j = at
        q = reduce_axis(4, "q")
        row = q.var // 2 * m + i
        within = row < size.rows if size.rows % 2 else None
        return sum_(of_a(p, q) * cast(factor, left(lead, row, q.var % 2 * k + j, within)), q)

    def weights(p: Expr, i: Expr, j: Expr) -> Reduction:
        q = reduce_axis(4, "q")
        return sum_(of_b(p, q) * cast(factor, right(q.var // 2 * k + i, q.var % 2 * n + j)), q)

    v = compute((len(A), *size.batch, m, k), sums, LEFT, ("p", *names, "i", "k"))
    u = compute((len(B), k, n), weights, RIGHT, ("p", "k", "j"))

    def multiplied(p: Expr, *at: Expr) -> Reduction:
        x = reduce_axis(k, "k")
        return sum_(cast(total, v[(p, *at[:-1], x)]) * cast(total, u[(p, x, at[-1])]), x)

    products = compute((len(A), *size.batch, m, n), multiplied, PRODUCTS, ("p", *names, "i", "j"))

    def together(c: Expr, *at: Expr) -> Reduction:
        p = reduce_axis(len(A), "p")
        return sum_(of_c(c, p) * products[(p.var, *at)], p)

    y = compute((len(C), *size.batch, m, n), together, QUARTERS, ("c", *names, "i", "j"))
    return lambda lead, i, j: y[(i // m * 2 + j // n, *lead, i % m, j % n)]


def _register(op: str, name: str) -> None:
    def count(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> int | None:
        found = product_of(op, name, types, attrs)
        return None if found is None else found.multiplications

    def product(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        return _product(op, name, inputs, attrs)

    exact = NAMES[name][0].is_int
    algorithm(
        op, name, multiplications=count, error=1.0 if exact else amplification, strict=exact,
        factor=NAMES[name][0] if exact else None, prepared=(1,),
    )(product)  # fmt: skip


for _op in OPERATORS:
    for _name in NAMES:
        _register(_op, _name)
