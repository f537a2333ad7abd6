"""Numbers in a byte or less as expressions: what the bits of a storage type mean, and the bits of a number.

Only shifts, masks and exact arithmetic in f32: no instruction set is needed for them.
"""

from __future__ import annotations

import math

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Reinterpret, binary, cast, const, select, unary
from autotune.tensor.storage import INTEGER_BITS, MINIFLOATS, Minifloat

ROUNDINGS = ("up", "down", "nearest")
"""How numbers become powers of two: away from zero, to zero, to the nearest one and from the middle up."""

_MANTISSA, _BIAS = 23, 127  # of f32
_ABSOLUTE = 0x7FFFFFFF


def decoded(x: Expr, to: DType) -> Expr:
    """The number that an element of a storage type is, in another dtype."""
    if x.dtype in INTEGER_BITS:
        own = DType.i8 if x.dtype.is_signed else DType.u8
        above = 8 - INTEGER_BITS[x.dtype]  # those bits may be anything
        return cast(to, binary("shr", binary("shl", Reinterpret(x, own), above), above))
    bits = cast(DType.u32, Reinterpret(x, DType.u8))
    number = _power(bits) if x.dtype is DType.f8e8m0 else _float(bits, MINIFLOATS[x.dtype])
    return cast(to, number)


def encoded(x: Expr, to: DType, saturate: bool = True, rounding: str = "up") -> Expr:
    """A number as an element of a storage type.

    Floats become integers as they do elsewhere (cut off), and of integers the low bits are kept. Numbers become 8-bit
    floats by way of f32, rounded half to even.

    Args:
        saturate: what is beyond the largest number becomes that one, else infinity or NaN. Types that have neither
            always saturate.
        rounding: to a power of two (f8e8m0), one of `ROUNDINGS`.
    """
    if to in INTEGER_BITS:
        whole = cast(DType.i32, x) if x.dtype.is_float else x
        return Reinterpret(binary("and", cast(DType.u8, whole), (1 << INTEGER_BITS[to]) - 1), to)
    real = cast(DType.f32, x)
    bits = _power_bits(real, saturate, rounding) if to is DType.f8e8m0 else _bits(real, MINIFLOATS[to], saturate)
    return Reinterpret(cast(DType.u8, bits), to)


def _float(bits: Expr, form: Minifloat) -> Expr:
    magnitude = binary("and", bits, form.sign - 1)
    up = (_BIAS - form.bias) << _MANTISSA
    normal = Reinterpret(binary("shl", magnitude, _MANTISSA - form.mantissa) + up, DType.f32)
    small = cast(DType.f32, magnitude) * 2.0 ** (1 - form.bias - form.mantissa)
    number = select(magnitude < (1 << form.mantissa), small, normal)
    if form.infinity is not None:
        number = select(binary("eq", magnitude, form.infinity), math.inf, number)
    if form.nan is not None and form.negative_zero:
        number = select(magnitude > (form.largest if form.infinity is None else form.infinity), math.nan, number)
    negative = binary("ne", binary("and", bits, form.sign), 0)
    signed = select(negative, -number, number)
    if form.nan is not None and not form.negative_zero:
        signed = select(binary("eq", bits, form.nan), math.nan, signed)
    return signed


def _bits(x: Expr, form: Minifloat, saturate: bool) -> Expr:
    given = Reinterpret(x, DType.u32)
    magnitude, step = binary("and", given, _ABSOLUTE), _MANTISSA - form.mantissa
    odd = binary("and", binary("shr", magnitude, step), 1)
    half = magnitude + ((1 << (step - 1)) - 1) + odd  # past the end of a step where it is rounded up
    # What is smaller than normal numbers wraps around here, and is replaced below.
    normal = binary("shr", half, step) - ((_BIAS - form.bias) << form.mantissa)
    absolute = Reinterpret(magnitude, DType.f32)
    least = 2.0 ** (1 - form.bias)
    near = select(absolute < least, absolute, 0.0) * 2.0 ** (form.bias + form.mantissa - 1)
    found = select(absolute < least, cast(DType.u32, unary("round", near)), normal)
    sign = binary("shr", binary("and", given, 1 << 31), 31 - form.exponent - form.mantissa)
    beyond = form.largest
    if not saturate:
        beyond = form.largest if form.nan is None else form.nan if form.infinity is None else form.infinity
    over = found > form.largest
    found = select(over, const(beyond, DType.u32), found)
    if form.nan is not None and form.negative_zero:
        return binary("or", sign, select(unary("isnan", x), form.nan, found))
    if form.nan is None:  # ml_dtypes, and with it onnx, makes NaN the zero of the other sign
        return select(unary("isnan", x), binary("xor", sign, form.sign), binary("or", sign, found))
    missing = unary("isnan", x) if saturate else binary("or", unary("isnan", x), over)
    signed = select(binary("eq", found, 0), 0, binary("or", sign, found))
    return select(missing, form.nan, signed)


def _power(bits: Expr) -> Expr:
    """2 ** (bits - 127); 255 is NaN."""
    least = const(2.0**-127, DType.f32)
    number = select(binary("eq", bits, 0), least, Reinterpret(binary("shl", bits, _MANTISSA), DType.f32))
    return select(binary("eq", bits, 255), math.nan, number)


def _power_bits(x: Expr, saturate: bool, rounding: str) -> Expr:
    """As onnx.reference does it: the sign does not count, infinity is NaN."""
    given = binary("and", Reinterpret(x, DType.u32), _ABSOLUTE)
    exponent, fraction = binary("shr", given, _MANTISSA), binary("and", given, (1 << _MANTISSA) - 1)
    if rounding == "down":
        return exponent
    if rounding == "up":
        more = fraction > 0
    else:
        middle, normal = 1 << (_MANTISSA - 1), exponent > 0
        more = binary("or", fraction > middle, binary("and", binary("eq", fraction, middle), normal))
    highest = 254 if saturate else 255
    return select(binary("and", more, exponent < highest), exponent + 1, exponent)
