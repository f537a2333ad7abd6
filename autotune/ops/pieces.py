"""Products of f32 as products of bf16: a number is the sum of three of eight bits each, a product that of six of these.

Each piece is what those before it leave, rounded, so that all three make up the whole number. Of the nine products of
pieces the three smallest are less than its last bit, and left out. What is left are the errors of a sum in f32 (Henry,
Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations", ARITH
2019). It pays where a CPU multiplies bf16 more than six times as fast as f32: with tile registers. Weights are cut once
and for all.

Pieces of what is infinite, or larger than the largest of bf16, are no numbers; of one below 2^-110 the last are zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.ops.broadcast import broadcast_shapes
from autotune.ops.checks import factors, require
from autotune.ops.conv import CONVOLUTIONS, Conv
from autotune.ops.registry import algorithm
from autotune.ops.window import inside, position
from autotune.ops.workload import TensorType
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, as_expr, cast, read, select
from autotune.tensor.stage import Axis, Reduction, Tensor, compute, reduce_axis, sum_

NAME = "pieces"
"""The algorithm's name."""

OPERATORS = ("matmul", *CONVOLUTIONS)
"""Whose algorithm it is."""

PIECES = 3
"""Of each number."""

PRODUCTS = PIECES * (PIECES + 1) // 2
"""Of pieces, for each product: of the first of one and any of the other, and so on."""

LEFT, RIGHT = "pieces_v", "pieces_u"
"""The stages that hold pieces of the data and of the weight, (piece, ..., term): the weight's of constants only."""

GROUP = 32
"""Terms that lie side by side: as many as tiles multiply at a time. Behind the last are zeros."""


ERROR = 2.5
"""How many times those of the plain sum the errors are: there are six times as many additions, in one chain."""


def terms_of(inner: int) -> int:
    """Terms of a sum of so many, with those that are added to have whole groups."""
    return -(-inner // GROUP) * GROUP


def _piece(which: Expr, number: Expr) -> Expr:
    """The piece of a number; of one of them, only what it is made of is computed where loops over them are written
    out."""
    pieces = [cast(DType.bf16, number)]
    while len(pieces) < PIECES:
        number = number - cast(DType.f32, pieces[-1])
        pieces.append(cast(DType.bf16, number))
    found = pieces.pop()
    for n, piece in reversed(list(enumerate(pieces, 1))):
        found = select(which < n, piece, found)
    return found


def _added_up(
    left: Callable[[Expr], tuple[Tensor, tuple[Expr, ...]]], right: Callable[[Expr], Expr], terms: Sequence[Axis]
) -> Reduction:
    """The sum over the terms of the products of pieces whose numbers add up to less than `PIECES`, the largest first.

    Args:
        left, right: of the number of a piece, the element of the data and that of the weight.
    """
    both, second = reduce_axis(PIECES, "d"), reduce_axis(PIECES, "p")
    first = both.var - second.var
    tensor, place = left(first)
    element = read(tensor, place, when=first >= 0)
    product = cast(DType.f32, element) * cast(DType.f32, right(second.var))
    return sum_(product, (both, second, *terms))


def _matmul(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    a, b = inputs
    factors("matmul", a, b)
    require(
        {a.dtype, b.dtype} == {DType.f32} and min(len(a.shape), len(b.shape)) >= 2,
        f"matmul: {NAME} needs matrices of f32, got {a.dtype.value} {a.shape} and {b.dtype.value} {b.shape}",
    )
    swapped_a, swapped_b = bool(attrs.get("trans_a")), bool(attrs.get("trans_b"))
    rows, inner = a.shape[:-3:-1] if swapped_a else a.shape[-2:]
    columns = b.shape[-2] if swapped_b else b.shape[-1]
    batch_a, batch_b = a.shape[:-2], b.shape[:-2]
    batch, terms = broadcast_shapes("matmul", (batch_a, batch_b)), terms_of(inner)

    def data(p: Expr, *at: Expr) -> Expr:
        *lead, i, k = at
        within = k < inner if terms > inner else None
        return _piece(p, read(a, (*lead, *((k, i) if swapped_a else (i, k))), when=within))

    def weight(p: Expr, *at: Expr) -> Expr:
        *lead, k, j = at
        within = k < inner if terms > inner else None
        return _piece(p, read(b, (*lead, *((j, k) if swapped_b else (k, j))), when=within))

    v = compute((PIECES, *batch_a, rows, terms), data, LEFT)
    u = compute((PIECES, *batch_b, terms, columns), weight, RIGHT)
    k = reduce_axis(terms, "k")

    def body(*at: Expr) -> Reduction:
        *lead, i, j = at
        row, column = _own(lead, batch, batch_a), _own(lead, batch, batch_b)
        return _added_up(lambda p: (v, (p, *row, i, k.var)), lambda p: u[(p, *column, k.var, j)], (k,))

    return compute((*batch, rows, columns), body, "matmul", (*(f"b{n}" for n in range(len(batch))), "i", "j"))


def _own(lead: Sequence[Expr], batch: Sequence[int], own: Sequence[int]) -> list[Expr]:
    """Where a position in the batch lies in that of an operand, which broadcasts."""
    skip = len(batch) - len(own)
    return [
        as_expr(0, DType.i64) if n < many else at for at, many, n in zip(lead[skip:], batch[skip:], own, strict=True)
    ]


def _convolution(op: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The image has its border, and its channels last."""
    image, weight = inputs
    factors(op, image, weight)
    size = Conv.of(op, image.shape, weight.shape, attrs)
    require(
        {image.dtype, weight.dtype} == {DType.f32} and size.groups == 1,
        f"{op}: {NAME} needs f32 and no groups, got {image.dtype.value}, {weight.dtype.value} and {size.groups} groups",
    )
    terms, rank = terms_of(size.c), size.rank
    axes = zip(size.out, size.stride, size.window, size.dilation, strict=True)
    spans = [(out - 1) * stride + (window - 1) * dilation + 1 for out, stride, window, dilation in axes]

    def data(p: Expr, n: Expr, *at: Expr) -> Expr:
        *place, c = at
        where = [o - before if before else o for o, before in zip(place, size.pad)]
        exists = inside(where, size.image, size.sides)
        if terms > size.c:
            exists = c < size.c if exists is None else exists & (c < size.c)
        return _piece(p, read(image, (n, c, *where), when=exists))

    def filters(p: Expr, k: Expr, *at: Expr) -> Expr:
        *tap, c = at
        within = c < size.c if terms > size.c else None
        return _piece(p, read(weight, (k, c, *tap), when=within))

    v = compute((PIECES, size.n, *spans, terms), data, LEFT)
    u = compute((PIECES, size.k, *size.window, terms), filters, RIGHT)
    c = reduce_axis(terms, "c")
    taps = [reduce_axis(extent, f"r{d}") for d, extent in enumerate(size.window)]

    def body(n: Expr, k: Expr, *o: Expr) -> Reduction:
        at = [position(y, s, tap.var, d, 0) for y, s, tap, d in zip(o, size.stride, taps, size.dilation)]
        tap = tuple(t.var for t in taps)
        return _added_up(lambda p: (v, (p, n, *at, c.var)), lambda p: u[(p, k, *tap, c.var)], (*taps, c))

    return compute((size.n, size.k, *size.out), body, "conv", ("n", "k", *(f"o{d}" for d in range(rank))))


def _count(op: str, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> int | None:
    a, b = types[:2]
    if {DType(a.dtype), DType(b.dtype)} != {DType.f32}:
        return None
    if op != "matmul":
        size = Conv.of(op, a.shape, b.shape, attrs)
        return PRODUCTS * size.multiplications if size.groups == 1 else None
    if min(len(a.shape), len(b.shape)) < 2:
        return None
    batch = broadcast_shapes(op, (a.shape[:-2], b.shape[:-2]))
    columns = b.shape[-2] if attrs.get("trans_b") else b.shape[-1]
    return PRODUCTS * math.prod((*batch, *a.shape[-2:], columns))


def _register(op: str) -> None:
    def count(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> int | None:
        return _count(op, types, attrs)

    @algorithm(op, NAME, multiplications=count, error=ERROR, strict=False, factor=DType.bf16, prepared=(1,))
    def product(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        return _matmul(inputs, attrs) if op == "matmul" else _convolution(op, inputs, attrs)


for _op in OPERATORS:
    _register(_op)
