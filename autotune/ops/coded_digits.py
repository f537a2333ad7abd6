"""Products with coded weights in integers: activations are three digits of eight bits, scaled by their block's maximum.

A CPU that multiplies bytes adds up four products a lane where it does one of floats, and codes of integers are bytes
as they lie in words: nothing is looked up. So three such products, one for each digit, cost less than one of floats.
What the digits say is within 1.25 / 8355709 of the largest activation in a block (2^-22.7), and their sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import require
from autotune.ops.coded import BYTES_PER_WORD, NAME, WORDS, Coded, code_bits, coded_of
from autotune.ops.precision import rounded
from autotune.ops.registry import algorithm
from autotune.ops.workload import TensorType
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Reinterpret, binary, cast, minimum, read, select, unary
from autotune.tensor.stage import Reduction, Tensor, compute, max_, reduce_axis, sum_
from autotune.tensor.storage import INTEGER_BITS, integer_range

DIGITS = 3
_ONES = 1 + 256 + 65536
MOST = 127 * _ONES - 2
"""Of the largest activation. Roundings add one at most, and digits of 127 * _ONES are all at most 127."""
_LIFT = 128 * _ONES
"""Makes digits from -128 the bytes of a number that is not negative."""
WIDEST = 256
"""Activations of a block at most: so many of their integers add up in an i32, and products of digits exactly in f32."""
_FASTEST = 2.0**125
"""The most that activations are multiplied by: its reciprocal is a normal number."""

MIXED = f"{NAME}_mixed"
"""The stage of constants in which each block's words and its scale, as bits, follow one another."""
PREPARED = ("rate", "unit", "digits", "middle")
"""Stages without a sum, by what follows the operator's name, that are computed before all else."""


def part_of(form: str, block: int, count: int) -> int | None:
    """Activations that share a unit: a block of weights, or of a column with one scale a part; None where nothing fits.

    Args:
        form, block: as the operator's attributes. count: of blocks in a column.
    """
    known = {dtype.value for dtype in INTEGER_BITS}
    if form not in WORDS or form not in known:
        return None
    if block <= WIDEST:
        return block
    step = DType.u32.bits // code_bits(form)
    return max(n for n in range(step, WIDEST + 1, step) if block % n == 0) if count == 1 else None


def _mixed(c: Coded, words: int) -> Tensor:
    """The words of each block, and behind them its scale: u32 (count, words + 1, columns)."""

    def element(b: Expr, w: Expr, j: Expr) -> Expr:
        place = b * words + w
        code = read(c.codes, (place, j), when=place < c.count * words)  # of the next block, where the scale lies
        return select(w < words, code, Reinterpret(c.scale[b, j], DType.u32))

    return compute((c.count, words + 1, c.columns), element, MIXED, ["b", "w", "j"])


def _as_many_as(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> int | None:
    """In multiply-adds of vectors: three instructions for four products a lane."""
    count, columns = types[2].shape[-2:]
    if part_of(attrs["format"], attrs["block"], count) is None:
        return None
    products = math.prod(types[2].shape[:-2]) * math.prod(types[0].shape[-2:]) * columns
    return -(-products * DIGITS // BYTES_PER_WORD)


@algorithm(NAME, "digits", multiplications=_as_many_as, strict=False)
def matmul_coded_digits(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """sum over blocks of unit[i, b] * scale[b, j] * sum over k of digits(a)[i, k] * (code[k, j] - middle).

    An infinite activation makes its row NaN where the definition's would be infinite or NaN.
    """
    c = coded_of(inputs, attrs)
    part = part_of(c.form, c.block, c.count)
    require(part is not None, f"{NAME}: there are no digits for codes of {c.form} in {c.count} blocks of {c.block}")
    assert part is not None
    per, bits = c.per, code_bits(c.form)
    parts = c.count * c.block // part
    first = integer_range(DType(c.form))[0]  # what a code of 0 stands for

    def named(what: str) -> str:
        return f"{NAME}_{what}"

    k, rows = reduce_axis(part, "k"), c.a.shape[:-1]

    def largest(*at: Expr) -> Reduction:
        *row, b = at
        return max_(unary("abs", c.element(row, b * part + k.var)), k)

    peak = compute((*rows, parts), largest, named("peak"), c.names("i", "b"))
    # The reciprocal of what was multiplied by, not the quotient the other way round: its rounding is the only one.
    rate = compute((*rows, parts), lambda *at: minimum(MOST / peak[at], _FASTEST), named("rate"), c.names("i", "b"))
    unit = compute((*rows, parts), lambda *at: 1.0 / rate[at], named("unit"), c.names("i", "b"))

    def number(row: Sequence[Expr], b: Expr, place: Expr) -> Expr:
        return cast(DType.i32, unary("round", c.element(row, b * part + place) * rate[(*row, b)]))

    def digit(n: Expr, *at: Expr) -> Expr:
        *row, b, place = at
        lifted = cast(DType.u32, number(row, b, place) + _LIFT)
        return cast(DType.i8, binary("xor", binary("shr", lifted, cast(DType.u32, n * 8)), 128))

    digits = compute((DIGITS, *rows, parts, part), digit, named("digits"), ["n", *c.names("i", "b", "k")])
    words, whole = part // per, c.count == parts
    # A core reads one stream of memory faster than two, of which one is a quarter of the other.
    mixed = _mixed(c, words) if whole and c.scale.dtype is DType.f32 and not c.batch else None

    def scale(n: Sequence[Expr], b: Expr | int, j: Expr) -> Expr:
        return cast(DType.f32, c.scale[(*n, b, j)]) if mixed is None else Reinterpret(mixed[b, words, j], DType.f32)

    g, h = reduce_axis(words, "g"), reduce_axis(per // BYTES_PER_WORD, "h")
    q = reduce_axis(BYTES_PER_WORD, "q")

    def product(d: Expr, *at: Expr) -> Reduction:
        *n, i, j, b = at
        word = c.codes[(*n, b * words + g.var, j)] if mixed is None else mixed[b, g.var, j]
        code = binary("and", binary("shr", word, cast(DType.u32, q.var * 8 + h.var * bits)), (1 << bits) - 1)
        place = g.var * per + h.var * BYTES_PER_WORD + q.var
        return sum_(cast(DType.i32, code) * cast(DType.i32, digits[(d, *c.of_rows(n), i, b, place)]), [g, h, q])

    dots = compute((DIGITS, *c.batch, c.rows, c.columns, parts), product, named("part"), ["n", *c.names("i", "j", "b")])
    lifted = first != 0 or c.zero is not None
    if lifted:

        def summed(*at: Expr) -> Reduction:
            *row, b = at
            return sum_(number(row, b, k.var), k)

        sums = compute((*rows, parts), summed, named("sums"), c.names("i", "b"))
        middle = compute((*rows, parts), lambda *at: cast(DType.f32, sums[at]), named("middle"), c.names("i", "b"))
    b = reduce_axis(parts, "b")

    def total(*at: Expr) -> Reduction:
        *n, i, j = at
        low, mid, high = (cast(DType.f32, dots[(d, *at, b.var)]) for d in range(DIGITS))
        found = (high * 256.0 + mid) * 256.0 + low
        row = (*c.of_rows(n), i, b.var)
        if lifted:
            points = 0.0 if c.zero is None else cast(DType.f32, c.zero[(*n, b.var if whole else 0, j)])
            found = found - (points - float(first)) * middle[row]
        each = unit[row]
        return sum_(found * (each * scale(n, b.var, j) if whole else each), b)

    result = compute((*c.batch, c.rows, c.columns), total, NAME if whole else named("total"), c.names("i", "j"))
    if not whole:
        once = result
        result = compute(once.shape, lambda *at: once[at] * scale(at[:-2], 0, at[-1]), NAME, c.names("i", "j"))
    return rounded(result, inputs[0], NAME)
