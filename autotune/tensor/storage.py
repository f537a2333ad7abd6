"""Storage types: how many bits their numbers have, and what these mean."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.tensor.dtype import DType

INTEGER_BITS = {DType.i4: 4, DType.u4: 4, DType.i2: 2, DType.u2: 2}


@dataclass(frozen=True, slots=True)
class Minifloat:
    """A float in a byte: a sign, `exponent` and `mantissa` bits.

    Attributes:
        largest: the bits of the largest finite number.
        infinity: the bits of infinity, None where there is none.
        nan: the bits of NaN, None where there is none.
        negative_zero: there is one; where there is none, its bits are NaN.
    """

    exponent: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None = None
    nan: int | None = None
    negative_zero: bool = True

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)


MINIFLOATS = {
    DType.f8e4m3fn: Minifloat(4, 3, 7, 0x7E, nan=0x7F),
    DType.f8e4m3fnuz: Minifloat(4, 3, 8, 0x7F, nan=0x80, negative_zero=False),
    DType.f8e5m2: Minifloat(5, 2, 15, 0x7B, infinity=0x7C, nan=0x7E),
    DType.f8e5m2fnuz: Minifloat(5, 2, 16, 0x7F, nan=0x80, negative_zero=False),
    DType.f6e2m3: Minifloat(2, 3, 1, 0x1F),
    DType.f6e3m2: Minifloat(3, 2, 3, 0x1F),
    DType.f4e2m1: Minifloat(2, 1, 1, 0x07),
}


def width(dtype: DType) -> int:
    """Bits of a number where numbers are packed."""
    if dtype in MINIFLOATS:
        return MINIFLOATS[dtype].exponent + MINIFLOATS[dtype].mantissa + 1
    return INTEGER_BITS.get(dtype, dtype.bits)


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and the largest number of a storage type of integers."""
    bits = INTEGER_BITS[dtype]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed else (0, (1 << bits) - 1)
