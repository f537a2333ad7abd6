"""Fields: some bits of a word, as a word of packed codes is read: `(word >> amount) & mask`."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr

BYTE = 255


@dataclass(frozen=True, slots=True)
class Field:
    """`(word >> amount) & mask`, at most a byte.

    Attributes:
        word: what is read, u32.
        amount: bits to shift it by, i64.
    """

    word: Expr
    amount: Expr
    mask: int


def field_of(e: Expr) -> Field | None:
    """What an expression takes out of a word, None where it does something else."""
    if not isinstance(e, Binary) or e.op != "and" or e.dtype is not DType.u32 or not isinstance(e.b, Const):
        return None
    shifted, mask = e.a, int(e.b.value)
    if not isinstance(shifted, Binary) or shifted.op != "shr" or not 0 < mask <= BYTE:
        return None
    return Field(shifted.a, shifted.b.a, mask) if isinstance(shifted.b, Cast) else None
