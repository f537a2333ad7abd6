"""exp, log, tanh and erf in float32 as expressions: vector code without a vector math library, to 2 ulp at worst.

Range reduction by powers of two, then minimax polynomials: of exp, tanh and erf as published by N. Juffa, of log as in
Cephes. Multiplications followed by additions are meant as one fused operation each, which codegen makes of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Expr, Reinterpret, binary, const, select, unary

LDEXP = "ldexp"
"""a * 2**b for a whole number b: not an operator of the tensor language, only of expansions."""

_MAGIC = 12582912.0  # 1.5 * 2**23: added to a small number, it leaves the nearest integer in the low bits
_EXP = (1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1.0, 1.0)
_LN2_HI, _LN2_LO = 0.693145751953125, 1.42860677e-6
_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_LOG_LN2_HI, _LOG_LN2_LO = 0.693359375, -2.12194440e-4
_TANH = (1.57394409e-2, -5.23025580e-2, 1.33152470e-1, -3.33327681e-1)
_TANH_SMALL, _TANH_ONE = 0.55, 9.1
_ERF = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
_ERFC = (-1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2, -1.06777877e-1, -6.34846687e-1, -1.28717512e-1)
_ERF_SMALL, _ERF_ONE = 0.927734375, 4.0


def expand(op: str, x: Expr) -> Expr | None:
    """The function as float32 arithmetic, or None when it is left to the C library."""
    if x.dtype is not DType.f32:
        return None
    known = {"exp": _exp, "log": _log, "tanh": _tanh, "erf": _erf}
    return known[op](x) if op in known else None


def scaled(y: Expr, n: Expr) -> Expr:
    """y * 2**n for a whole f32 n of less than 2**22, in arithmetic that every CPU has.

    Two factors reach the denormals and infinity, which one exponent field cannot.
    """
    whole = Reinterpret(n + _f(_MAGIC), DType.i32) - _i(0x4B400000)
    half = binary("shr", whole, _i(1))
    return (y * _power_of_two(half)) * _power_of_two(whole - half)


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
    return _exp_between(_clamp(x, -104.0, 89.0))


def _exp_between(x: Expr) -> Expr:
    """exp of -104..89: 2**n * exp(r) with r in -log(2)/2..log(2)/2."""
    n = (x * _f(math.log2(math.e)) + _f(_MAGIC)) - _f(_MAGIC)
    r = (x - n * _f(_LN2_HI)) - n * _f(_LN2_LO)
    return Binary(LDEXP, _horner(r, _EXP), n, DType.f32)


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
    y = _horner(r, _LOG) * (square * r) + e * _f(_LOG_LN2_LO) - square * _f(0.5)
    finite = (r + y) + e * _f(_LOG_LN2_HI)
    infinite = select(binary("eq", x, _f(math.inf)), _f(math.inf), finite)
    zero = select(binary("eq", x, _f(0.0)), _f(-math.inf), infinite)
    return select(binary("or", x < _f(0.0), unary("isnan", x)), _f(math.nan), zero)


def _tanh(x: Expr) -> Expr:
    """x + x**3 p(x**2) near zero, 1 - 2 / (exp(2 |x|) + 1) elsewhere."""
    size, square = unary("abs", x), x * x
    near = (_horner(square, _TANH) * square + _f(0.0)) * x + x  # adding 0 keeps the sign of -0
    power = _exp_between(binary("min", size, _f(_TANH_ONE)) * _f(2.0))
    far = _f(1.0) - _f(2.0) / (power + _f(1.0))
    return select(size > _f(_TANH_SMALL), _with_sign(far, x), near)


def _erf(x: Expr) -> Expr:
    """x + x p(x**2) near zero, 1 - exp(q(|x|)) elsewhere."""
    size = unary("abs", x)
    square = x * x
    near = _horner(square, _ERF) * x + x
    bounded = binary("min", size, _f(_ERF_ONE))
    exponent = _horner(bounded, _ERFC) * bounded - bounded
    far = _f(1.0) - _exp_between(exponent)
    return select(size > _f(_ERF_SMALL), _with_sign(far, x), near)


def _with_sign(magnitude: Expr, x: Expr) -> Expr:
    """A number that is not negative, with the sign of x."""
    sign = binary("and", Reinterpret(x, DType.i32), _i(-(2**31)))
    return Reinterpret(binary("or", Reinterpret(magnitude, DType.i32), sign), DType.f32)
