"""Products with weights that are kept as codes of a few bits: what they stand for is looked up in registers.

Codes are scaled block by block along the sum, so each block is summed up first, and scaled once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.ops.checks import floating, integer, rank_of, require, word
from autotune.ops.precision import rounded
from autotune.ops.registry import Needed, operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, lookup, read
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_
from autotune.tensor.storage import INTEGER_BITS, integer_range, width

NAME = "matmul_coded"
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
"""Formats of which a word holds several, see `code_shift`. Signed integers are counted from the least."""
BYTES = ("i8", "u8")
BYTES_PER_WORD = 4


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


def code_shift(form: str, place: int) -> int:
    """Where in a word the code of an element lies: neighbours in neighbouring bytes, then in the next higher bits."""
    return 8 * (place % BYTES_PER_WORD) + code_bits(form) * (place // BYTES_PER_WORD)


@dataclass(frozen=True, slots=True)
class Coded:
    """The operands of a product with coded weights, checked.

    Attributes:
        a: (rows, depth) real; `codes`: (count * block / per, columns); `scale`, `zero`: (count, columns). In a batch
            all of them have one more dimension, the first; that of `a` may be 1, then all read the same rows.
        form, block: as the operator's attributes; `per`: codes that an element of `codes` holds.
    """

    a: Tensor
    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    form: str
    block: int
    per: int

    @property
    def batch(self) -> tuple[int, ...]:
        """(products,), or nothing of one."""
        return self.scale.shape[:-2]

    def of_rows(self, member: Sequence[Expr]) -> tuple[Expr | int, ...]:
        """The place of a member of the batch in `a`, and in what is made of that."""
        return (0,) if self.a.shape[:-2] == (1,) else tuple(member)

    @property
    def rows(self) -> int:
        return self.a.shape[-2]

    @property
    def columns(self) -> int:
        return self.scale.shape[-1]

    @property
    def count(self) -> int:
        """Blocks of a column."""
        return self.scale.shape[-2]

    def element(self, row: Sequence[Expr | int], k: Expr) -> Expr:
        """An element of a row of `a`, whose place there is `of_rows` and its number, in f32; 0 behind its last one."""
        depth = self.a.shape[-1]
        inside = self.count * self.block > depth
        return cast(DType.f32, read(self.a, (*row, k), when=k < depth) if inside else self.a[(*row, k)])

    def names(self, *own: str) -> list[str]:
        """Of the axes of a stage: those of the batch, and its own."""
        return [*("m" for _ in self.batch), *own]


def coded_of(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Coded:
    """The operands of a `matmul_coded`.

    Raises:
        WorkloadError: they do not fit each other or the attributes.
    """
    a, codes, scale, *zeros = inputs
    form = word(NAME, attrs, "format", (*WORDS, *BYTES))
    block, per = integer(NAME, attrs, "block", 1), codes_per_element(form)
    operands = ((a, "a"), (codes, "codes"), (scale, "scale"), *((z, "zero") for z in zeros))
    for t, name in operands:
        rank_of(NAME, t, 3 if len(a.shape) == 3 else 2, name)
    floating(NAME, a)
    floating(NAME, scale)
    depth, (*batch, count, columns) = a.shape[-1], scale.shape
    for t, name in operands:
        fits = t.shape[:-2] == tuple(batch) or (t is a and t.shape[:-2] == (1,))
        require(fits, f"{NAME}: {name} of shape {t.shape} for a batch of {batch} products")
    kept = WORD if form in WORDS else DType(form)
    require(codes.dtype is kept, f"{NAME}: codes of {form} lie in {kept}, not {codes.dtype}")
    require(block % per == 0, f"{NAME}: blocks of {block} end within a word of {per} codes")
    require(count == -(-depth // block), f"{NAME}: {count} scales for {depth} elements in blocks of {block}")
    wanted = (*batch, count * block // per, columns)
    require(codes.shape == wanted, f"{NAME}: codes of shape {codes.shape}, {wanted} are needed")
    require(
        all(z.shape == scale.shape for z in zeros), f"{NAME}: the zero points need the shape {scale.shape} of scale"
    )
    return Coded(a, codes, scale, zeros[0] if zeros else None, form, block, per)


@operator(
    NAME, operands="a codes scale zero?", weights="codes scale", traits="leads_layout",
    block=Needed.integer, format="i4",
)  # fmt: skip
def matmul_coded(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """result[i, j] = sum over k of a[i, k] * (value[k, j] - zero[k // block, j]) * scale[k // block, j].

    `codes` holds words of neighbours along k (`code_shift`; formats of 8 bits: each by itself), for whole blocks; what
    lies behind the last element of `a` does not count. `scale` and `zero` have a row for each block. A batch of such
    products has one more dimension of all operands, the first.
    """
    c = coded_of(inputs, attrs)
    block, per = c.block, c.per
    values = code_values(c.form) if c.form in WORDS else ()
    g, h = reduce_axis(block // per, "g"), reduce_axis(max(per // BYTES_PER_WORD, 1), "h")
    q = reduce_axis(BYTES_PER_WORD, "q")

    def value(n: Sequence[Expr], b: Expr, j: Expr) -> Expr:
        code = c.codes[(*n, b * (block // per) + g.var, j)]
        if not values:
            return cast(DType.f32, code)
        return lookup(values, binary("shr", code, cast(WORD, q.var * 8 + h.var * code_bits(c.form))))

    def product(*at: Expr) -> Reduction:
        *n, i, j, b = at
        place = g.var * per + h.var * BYTES_PER_WORD + q.var if values else g.var
        return sum_(c.element((*c.of_rows(n), i), b * block + place) * value(n, b, j), [g, h, q] if values else [g])

    shape = (*c.batch, c.rows, c.columns)
    part = compute((*shape, c.count), product, f"{NAME}_part", c.names("i", "j", "b"))
    blocks = reduce_axis(c.count, "b")
    if c.zero is not None:
        k = reduce_axis(block, "k")

        def summed(*at: Expr) -> Reduction:
            *row, b = at
            return sum_(c.element(row, b * block + k.var), k)

        sums = compute((*c.a.shape[:-1], c.count), summed, f"{NAME}_sums", c.names("i", "b"))

    def scaled(*at: Expr) -> Reduction:
        *n, i, j = at
        b = blocks.var
        found: Expr = part[(*at, b)]
        if c.zero is not None:
            found = found - cast(DType.f32, c.zero[(*n, b, j)]) * sums[(*c.of_rows(n), i, b)]
        return sum_(found * cast(DType.f32, c.scale[(*n, b, j)]), blocks)

    return rounded(compute(shape, scaled, NAME, c.names("i", "j")), c.a, NAME)
