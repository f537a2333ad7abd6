"""Weights of a product as `matmul_coded` keeps them: codes of a few bits in words along the sum, scales per block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array
from autotune.ops.coded import BYTES, WORD, WORDS, code_bits, code_shift, codes_per_element
from autotune.tensor import DType
from autotune.tensor.storage import INTEGER_BITS, integer_range


@dataclass(frozen=True, slots=True)
class CodedWeight:
    """The constant operands of `matmul_coded`, and its attributes."""

    codes: Array
    scale: Array
    zero: Array | None
    block: int
    form: str


def coded_weight(numbers: Array, form: str, scale: Array, zero: Array | None, block: int) -> CodedWeight | None:
    """None where blocks end within a word, or the format has no codes.

    Args:
        numbers: (K, N) what is multiplied, in the dtype of the format; those of other formats as bits in u8.
        form: of the codes.
        scale: (blocks, N), real. `zero`: of the same shape, None where all are zero.
        block: elements along K that share a scale. A single block may be longer than K.
    """
    depth, columns = numbers.shape
    if form not in (*WORDS, *BYTES):
        return None
    per = codes_per_element(form)
    if len(scale) == 1:
        block = -(-depth // per) * per
    if block % per or len(scale) != -(-depth // block):
        return None
    form, numbers, zero = _symmetric(numbers, form, zero)
    if zero is not None and DType.of(zero.dtype).is_storage:
        zero = zero.astype(np.int8 if form in ("i4", "i2") else np.uint8 if form in ("u4", "u2") else np.float32)
    padded = len(scale) * block
    if per == 1:
        codes = numbers if padded == depth else np.pad(numbers, ((0, padded - depth), (0, 0)))
        return CodedWeight(codes, scale, zero, block, form)
    low = _least(form)
    codes = np.zeros((padded // per, columns), WORD.numpy)
    for n in range(per):
        each = numbers[n::per]
        bits = each.view(np.uint8) if low == 0 else each.astype(np.int8) - np.int8(low)
        field = bits.astype(WORD.numpy) & np.uint32((1 << code_bits(form)) - 1)
        codes[: len(each)] |= field << np.uint32(code_shift(form, n))
    return CodedWeight(codes, scale, zero, block, form)


def _symmetric(numbers: Array, form: str, zero: Array | None) -> tuple[str, Array, Array | None]:
    """Without the zero points where all are none, or the middle of an unsigned type, which is then taken for signed."""
    if zero is None or not np.any(zero.astype(np.float32)):
        return form, numbers, None
    if not form.startswith("u"):
        return form, numbers, zero
    bits = code_bits(form)
    middle = 1 << (bits - 1)
    if not np.all(zero.astype(np.float32) == middle):
        return form, numbers, zero
    signed = DType(f"i{bits}").numpy
    return f"i{bits}", (numbers.astype(np.int16) - np.int16(middle)).astype(signed), None


def _least(form: str) -> int:
    """The number of code 0, 0 where codes are no integers."""
    known = {dtype.value: dtype for dtype in INTEGER_BITS}
    return integer_range(known[form])[0] if form in known else 0
