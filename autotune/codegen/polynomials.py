"""exp, log, tanh and erf in float32 as expressions: vector code without a vector math library.

Range reduction and minimax polynomials as in Cephes (exp, log) and Eigen (rational tanh and erf).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Cast, Expr, Reinterpret, binary, const, select, unary

_LN2_HI, _LN2_LO = 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_TANH_P = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
           1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)  # fmt: skip
_TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ERF_P = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
          -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)  # fmt: skip
_ERF_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
          -1.42647390514189e-02)  # fmt: skip


def expand(op: str, x: Expr) -> Expr | None:
    """The function as float32 arithmetic, or None when it is left to the C library."""
    if x.dtype is not DType.f32:
        return None
    known = {"exp": _exp, "log": _log, "tanh": _tanh, "erf": _erf}
    return known[op](x) if op in known else None


def _f(value: float) -> Expr:
    return const(value, DType.f32)


def _i(value: int) -> Expr:
    return const(value, DType.i32)


def _horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    total = _f(coefficients[0])
    for c in coefficients[1:]:
        total = total * x + _f(c)
    return total


def _clamp(x: Expr, lo: float, hi: float) -> Expr:
    """Keeps NaN: a constant side of max and min never hides it."""
    return binary("min", binary("max", x, _f(lo)), _f(hi))


def _power_of_two(n: Expr) -> Expr:
    """2**n for an i32 in -126..127, by writing the exponent field."""
    return Reinterpret(binary("shl", n + _i(127), _i(23)), DType.f32)


def _exp(x: Expr) -> Expr:
    bounded = _clamp(x, -104.0, 89.0)
    n = unary("round", bounded * _f(math.log2(math.e)))
    r = (bounded - n * _f(_LN2_HI)) - n * _f(_LN2_LO)
    y = _horner(r, _EXP) * (r * r) + (r + _f(1.0))
    whole = Cast(n, DType.i32)
    half = binary("shr", whole, _i(1))
    # Two factors reach the denormals and infinity, which one exponent field cannot.
    return (y * _power_of_two(half)) * _power_of_two(whole - half)


def _log(x: Expr) -> Expr:
    tiny = x < _f(1.17549435e-38)
    scaled = select(tiny, x * _f(2.0**25), x)
    bits = Reinterpret(scaled, DType.i32)
    shifted = bits - _i(0x3F3504F3)
    exponent = binary("shr", shifted, _i(23))
    mantissa = Reinterpret(binary("and", shifted, _i(0x7FFFFF)) + _i(0x3F3504F3), DType.f32)
    e = Cast(exponent, DType.f32) - select(tiny, _f(25.0), _f(0.0))
    r = mantissa - _f(1.0)
    square = r * r
    y = _horner(r, _LOG) * (square * r) + e * _f(_LN2_LO) - square * _f(0.5)
    finite = (r + y) + e * _f(_LN2_HI)
    infinite = select(binary("eq", x, _f(math.inf)), _f(math.inf), finite)
    zero = select(binary("eq", x, _f(0.0)), _f(-math.inf), infinite)
    return select(binary("or", x < _f(0.0), unary("isnan", x)), _f(math.nan), zero)


def _tanh(x: Expr) -> Expr:
    bounded = _clamp(x, -7.90531110763549805, 7.90531110763549805)
    square = bounded * bounded
    ratio = (bounded * _horner(square, _TANH_P)) / _horner(square, _TANH_Q)
    return select(unary("abs", x) < _f(0.0004), x, ratio)


def _erf(x: Expr) -> Expr:
    bounded = _clamp(x, -3.832506856900711, 3.832506856900711)
    square = bounded * bounded
    return (bounded * _horner(square, _ERF_P)) / _horner(square, _ERF_Q)
