"""Products with weights that are kept as codes of a few bits: what they stand for is looked up in registers.

Codes are scaled block by block along the sum, so each block is summed up first, and scaled once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.ops.checks import floating, integer, rank_of, require, word
from autotune.ops.precision import rounded
from autotune.ops.registry import Needed, operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, lookup, read
from autotune.tensor.formats import INTEGER_BITS, integer_range, width
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_

WORD = DType.u32
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""Quantiles of the normal distribution (Dettmers et al., "QLoRA", NeurIPS'23)."""

_FP4 = (0.0, 5.208333333e-03, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
TABLES = {"nf4": NF4, "fp4": (*_FP4, *(-v for v in _FP4))}
"""Formats of bitsandbytes, which are no element types: what each code of 4 bits stands for."""

WORDS = ("i4", "u4", "i2", "u2", "f4e2m1", *TABLES)
"""Formats of which a word holds several, the first in the lowest bits. Signed integers are counted from the least."""
BYTES = ("i8", "u8")


def code_bits(form: str) -> int:
    """Bits of a code."""
    return 4 if form in TABLES else width(DType(form))


def code_values(form: str) -> tuple[float, ...]:
    """What each code of a format that words hold stands for."""
    if form in TABLES:
        return TABLES[form]
    if DType(form) in INTEGER_BITS:
        low, high = integer_range(DType(form))
        return tuple(map(float, range(low, high + 1)))
    codes = np.arange(1 << code_bits(form), dtype=np.uint8)
    return tuple(float(v) for v in codes.view(DType(form).numpy).astype(np.float32))


def codes_per_element(form: str) -> int:
    """Codes that an element of the operand holds."""
    return WORD.bits // code_bits(form) if form in WORDS else 1


@operator(
    "matmul_coded", operands="a codes scale zero?", weights="codes scale", traits="leads_layout",
    block=Needed.integer, format="i4",
)  # fmt: skip
def matmul_coded(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """result[i, j] = sum over k of a[i, k] * (value[k, j] - zero[k // block, j]) * scale[k // block, j].

    `codes` holds words of neighbours along k (formats of 8 bits: each by itself), for whole blocks; what lies behind
    the last element of `a` does not count. `scale` and `zero` have a row for each block.
    """
    op = "matmul_coded"
    a, codes, scale, *zeros = inputs
    form = word(op, attrs, "format", (*WORDS, *BYTES))
    block, per = integer(op, attrs, "block", 1), codes_per_element(form)
    for t, name in ((a, "a"), (codes, "codes"), (scale, "scale"), *((z, "zero") for z in zeros)):
        rank_of(op, t, 2, name)
    floating(op, a)
    floating(op, scale)
    (rows, depth), (count, columns) = a.shape, scale.shape
    kept = WORD if form in WORDS else DType(form)
    require(codes.dtype is kept, f"{op}: codes of {form} lie in {kept}, not {codes.dtype}")
    require(block % per == 0, f"{op}: blocks of {block} end within a word of {per} codes")
    require(count == -(-depth // block), f"{op}: {count} scales for {depth} elements in blocks of {block}")
    wanted = (count * block // per, columns)
    require(codes.shape == wanted, f"{op}: codes of shape {codes.shape}, {wanted} are needed")
    require(all(z.shape == scale.shape for z in zeros), f"{op}: the zero points need the shape {scale.shape} of scale")

    g, e = reduce_axis(block // per, "g"), reduce_axis(per, "e")
    values = code_values(form) if form in WORDS else ()

    def element(i: Expr, b: Expr, place: Expr) -> Expr:
        k = b * block + place
        return cast(DType.f32, read(a, (i, k), when=k < depth) if count * block > depth else a[i, k])

    def value(b: Expr, j: Expr) -> Expr:
        code = codes[b * (block // per) + g.var, j]
        if not values:
            return cast(DType.f32, code)
        return lookup(values, binary("shr", code, cast(WORD, e.var * code_bits(form))))

    def product(i: Expr, j: Expr, b: Expr) -> Reduction:
        return sum_(element(i, b, g.var * per + e.var if values else g.var) * value(b, j), [g, e] if values else [g])

    part = compute((rows, columns, count), product, f"{op}_part", ["i", "j", "b"])
    blocks = reduce_axis(count, "b")
    if zeros:
        k = reduce_axis(block, "k")
        sums = compute((rows, count), lambda i, b: sum_(element(i, b, k.var), k), f"{op}_sums", ["i", "b"])

    def scaled(i: Expr, j: Expr) -> Reduction:
        b = blocks.var
        found: Expr = part[i, j, b]
        if zeros:
            found = found - cast(DType.f32, zeros[0][b, j]) * sums[i, b]
        return sum_(found * cast(DType.f32, scale[b, j]), blocks)

    return rounded(compute((rows, columns), scaled, op, ["i", "j"]), a, op)
