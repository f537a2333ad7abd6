"""x ** y in float32 as an expression: 2 ** (y log2 |x|) in float64, then the rules of C for what is no such power."""

from __future__ import annotations

import math

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Cast, Expr, Reinterpret, binary, const, select, unary

_MAGIC = 1.5 * 2.0**52  # added to a small number, it leaves the nearest integer in the low bits
_ROOT_HALF = 0x3FE6A09E667F3BCD  # bits of sqrt(1 / 2): mantissas are taken around 1
# log2((1 + s) / (1 - s)) = s p(s**2) to 2**-45, 2**f = 1 + f q(f) to 2**-40
_LOG2 = (0.28293397035168283, 0.31990345548280147, 0.41220930373129205, 0.5770779418910397, 0.961796694114874,
         2.885390081777849)  # fmt: skip
_POWER = (1.3178935729057248e-06, 1.5309156465710653e-05, 0.00015403825453613168, 0.0013333454859439592,
          0.00961812861613463, 0.05550410935267432, 0.24022650698110565, 0.693147180548212)  # fmt: skip


def power(x: Expr, y: Expr) -> Expr:
    """x ** y of two f32, rounded once."""
    size, exponent = Cast(unary("abs", x), DType.f64), Cast(y, DType.f64)
    log = _log2(size)
    raised = Cast(_exp2(exponent * log), DType.f32)
    zero, one, infinity = (const(v) for v in (0.0, 1.0, math.inf))
    # What has no logarithm: 0 and infinity are as far out as the exponent allows.
    vanishes, grows = binary("eq", x, 0.0), binary("eq", unary("abs", x), math.inf)
    outward = select(y > 0.0, select(vanishes, zero, infinity), select(vanishes, infinity, zero))
    found = select(vanishes | grows, outward, raised)
    half = y * 0.5
    whole = binary("eq", unary("floor", y), y)
    odd = whole & binary("ne", unary("floor", half), half)
    bits = Reinterpret(x, DType.i32)
    signed = Reinterpret(binary("or", Reinterpret(found, DType.i32), binary("and", bits, -(2**31))), DType.f32)
    found = select(odd, signed, found)
    no_number = (x < 0.0) & binary("xor", whole | grows, const(True, DType.bool))
    found = select(no_number | unary("isnan", x) | unary("isnan", y), const(math.nan), found)
    unit = binary("eq", unary("abs", x), 1.0) & binary("eq", unary("abs", y), math.inf)
    return select(binary("eq", y, 0.0) | binary("eq", x, 1.0) | unit, one, found)


def _log2(x: Expr) -> Expr:
    """log2 of a positive normal f64."""
    bits = Reinterpret(x, DType.i64)
    exponent = binary("shr", bits - _ROOT_HALF, 52)
    m = Reinterpret(bits - binary("shl", exponent, 52), DType.f64)
    s = (m - 1.0) / (m + 1.0)
    return s * _horner(s * s, _LOG2) + Cast(exponent, DType.f64)


def _exp2(t: Expr) -> Expr:
    """2 ** t in f64, of a t of any size: what an f32 cannot hold becomes 0 or infinity."""
    t = binary("min", binary("max", t, -300.0), 300.0)
    shifted = t + _MAGIC
    f = t - (shifted - _MAGIC)
    scale = Reinterpret(binary("shl", Reinterpret(shifted, DType.i64) + 1023, 52), DType.f64)
    return (f * _horner(f, _POWER) + 1.0) * scale


def _horner(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    total: Expr = const(coefficients[0], DType.f64)
    for c in coefficients[1:]:
        total = total * x + c
    return total
