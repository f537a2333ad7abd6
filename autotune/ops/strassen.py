"""Strassen's product of matrices (Numerische Mathematik 1969), one level: seven products of halves instead of eight.

Both operands and the result are cut in two both ways. Each of seven products is that of a sum of quarters of `a` and a
sum of quarters of `b`; the result's quarters are sums of products. Sums of a weight's quarters are made once and for
all. Of bytes, sums of two have 16 bits, of which one instruction multiplies pairs, and nothing is ever rounded: what
overflows on the way does so modulo 2^32, as sums of products do anyway.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import factors, flag, require
from autotune.ops.registry import algorithm
from autotune.ops.workload import TensorType
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, cast, read
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_, table

NAMES = {"strassen": (DType.f32, DType.f32), "strassen_exact": (DType.i16, DType.i32)}
"""The algorithms: types of what is multiplied and of what is added up."""

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


def applies(name: str, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> bool:
    """Whether these matrices can be cut: of right types, the second without batch, and even where nothing is added."""
    (a, b), product = types[:2], NAMES[name][0]
    known = {DType.f32} if product.is_float else {DType.u8, DType.i8}
    if not {DType(a.dtype), DType(b.dtype)} <= known or len(a.shape) < 2 or len(b.shape) != 2 or attrs.get("trans_a"):
        return False
    return min(a.shape) > 0 and a.shape[-2] > 1 and all(n > 0 and n % 2 == 0 for n in b.shape)


def _product(name: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The stages strassen_u (of constants only), strassen_v, strassen_m, strassen_y and matmul."""
    a, b = inputs
    factors("matmul", a, b)
    types = [TensorType(t.dtype.value, t.shape) for t in (a, b)]
    require(
        applies(name, types, attrs),
        f"matmul: {name} needs rows of {'floats of 32 bits' if name == 'strassen' else 'bytes'} times one matrix of an "
        "even number of rows and columns",
    )
    factor, total = NAMES[name]
    transposed = flag("matmul", attrs, "trans_b")
    *batch, rows, inner = a.shape
    columns = b.shape[0] if transposed else b.shape[1]
    m, k, n = -(-rows // 2), inner // 2, columns // 2
    of_a, of_b, of_c = (table(f"strassen_{x}", rows, use) for x, rows, use in (("a", A, factor), ("b", B, factor), ("c", C, total)))

    def left(p: Expr, *at: Expr) -> Reduction:
        *lead, i, j = at
        q = reduce_axis(4, "q")
        row, column = q.var // 2 * m + i, q.var % 2 * k + j
        within = row < rows if rows % 2 else None
        return sum_(of_a(p, q) * cast(factor, read(a, (*lead, row, column), when=within)), q)

    def right(p: Expr, i: Expr, j: Expr) -> Reduction:
        q = reduce_axis(4, "q")
        row, column = q.var // 2 * k + i, q.var % 2 * n + j
        return sum_(of_b(p, q) * cast(factor, b[(column, row) if transposed else (row, column)]), q)

    names = [f"b{d}" for d in range(len(batch))]
    v = compute((len(A), *batch, m, k), left, LEFT, ("p", *names, "i", "k"))
    u = compute((len(B), k, n), right, RIGHT, ("p", "k", "j"))

    def multiplied(p: Expr, *at: Expr) -> Reduction:
        x = reduce_axis(k, "k")
        return sum_(cast(total, v[(p, *at[:-1], x)]) * cast(total, u[(p, x, at[-1])]), x)

    products = compute((len(A), *batch, m, n), multiplied, PRODUCTS, ("p", *names, "i", "j"))

    def together(c: Expr, *at: Expr) -> Reduction:
        p = reduce_axis(len(A), "p")
        return sum_(of_c(c, p) * products[(p.var, *at)], p)

    y = compute((len(C), *batch, m, n), together, QUARTERS, ("c", *names, "i", "j"))

    def result(*at: Expr) -> Expr:
        *lead, i, j = at
        return y[(i // m * 2 + j // n, *lead, i % m, j % n)]

    return compute((*batch, rows, columns), result, "matmul", (*names, "i", "j"))


def _register(name: str) -> None:
    def count(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> int | None:
        if not applies(name, types, attrs):
            return None
        *batch, rows, inner = types[0].shape
        columns = types[1].shape[0 if attrs.get("trans_b") else 1]
        return len(A) * math.prod(batch) * -(-rows // 2) * (inner // 2) * (columns // 2)

    def product(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        return _product(name, inputs, attrs)

    exact = NAMES[name][0].is_int
    algorithm(
        "matmul", name, multiplications=count, error=1.0 if exact else amplification, strict=exact,
        factor=NAMES[name][0] if exact else None, prepared=(1,),
    )(product)  # fmt: skip


for _name in NAMES:
    _register(_name)
