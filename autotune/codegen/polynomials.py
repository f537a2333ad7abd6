"""exp, log, tanh, erf, sigmoid, sin, cos in float32 as expressions: vector code without a library, to 2 ulp at worst.

gelu, a product with numbers that are nearly 0 or 1, is exact to 3 units of 2**-24 of its argument.

Range reduction by powers of two, then minimax polynomials: of exp as published by N. Juffa, of log as in Cephes, others
fitted to this use. Multiplications followed by additions are meant as one fused operation each, which codegen makes of
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Expr, Reinterpret, Unary, binary, const, select, unary

LDEXP = "ldexp"
"""a * 2**b for a whole number b: not an operator of the tensor language, only of expansions."""
FRACTION = "fraction"
"""x - floor(x), 0 of infinities: one instruction of AVX-512. Where it exists, LDEXP takes floor(b) itself."""

_MAGIC = 12582912.0  # 1.5 * 2**23: added to a small number, it leaves the nearest integer in the low bits
_EXP = (1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1.0, 1.0)
_LN2_HI, _LN2_LO = 0.693145751953125, 1.42860677e-6
_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_LOG_LN2_HI, _LOG_LN2_LO = 0.693359375, -2.12194440e-4
_LOG2E = math.log2(math.e)
_LN2 = math.log(2)
_TANH_ONE, _ERF_ONE = 9.1, 3.95  # from here on the result is 1
# exp(r) = 1 + r + r**2 q(r), relatively exact to 0.05 units of 2**-24 and, less 1, to 0.23.
_EXP_TAIL = (1.38210552e-3, 8.36867467e-3, 4.16682623e-2, 1.66665211e-1, 4.99999940e-1)
_GROWTH_TAIL = (1.38706632e-3, 8.36625975e-3, 4.16674353e-2, 1.66665465e-1, 4.99999970e-1)
# 2**f = 1 + f p(f), relatively exact to 0.22 units of 2**-24.
_POWER_TAIL = (1.53821121e-4, 1.33873825e-3, 9.61831119e-3, 5.55036739e-2, 2.40226492e-1, 6.93147182e-1)
# The same with f in 0..1, to 0.04 units: where an instruction raises two to the whole power below.
_POWER_ABOVE = (2.16129145e-04, 1.24678470e-03, 9.67545155e-03, 5.54852821e-02, 2.40229309e-01, 6.93147063e-01)
# -log(erfc(x)) = x + x p(x)
_ERF = (-6.68739540e-6, 9.63240818e-5, -5.63334033e-4, 1.55308552e-3, -6.06634530e-5, -1.91986430e-2, 1.02787636e-1,
        6.36618614e-1, 1.28379181e-1)  # fmt: skip
# erf(x / sqrt 2) = x p(x**2) / q(x**2) for |x| < 5.5, to 0.3 units of 2**-24.
_NORMAL_P = (4.57849706e-08, 1.26480043e-05, 3.32200669e-04, 9.32125451e-03, 6.71913203e-02, 7.97884509e-01)
_NORMAL_Q = (1.19959907e-06, 7.27237679e-05, 1.86908211e-03, 2.84964816e-02, 2.50877998e-01, 1.0)
_NORMAL_END = 5.5
# sin(r) = r + r**3 p(r**2), cos(r) = 1 - r**2 / 2 + r**4 q(r**2)
_SIN = (2.83268855e-6, -1.98530703e-4, 8.33337940e-3, -1.66666672e-1)
_COS = (-2.88808906e-7, 2.48220204e-5, -1.38889800e-3, 4.16666679e-2)
_QUARTER = (1.57079637, -4.37113883e-8, -1.71512489e-15)  # pi / 2 in three parts
FAR = {"sin": 48000.0, "cos": 48000.0}
"""Functions that hold only so far from zero: beyond, the reduction by multiples of pi / 2 runs out of digits."""
_MAGIC_POWER = _MAGIC + 127.0  # leaves the nearest integer where a shift makes it an exponent


def expand(op: str, x: Expr) -> Expr | None:
    """The function as arithmetic, or None when it is left to the C library; float64 is, but for what that lacks."""
    if x.dtype is DType.f32 and op in _EXPANSIONS:
        return _EXPANSIONS[op](x)
    if op == "gelu":
        return (x * 0.5) * unary("erf", x * math.sqrt(0.5)) + x * 0.5
    return logistic(x) if op == "sigmoid" else None


def exp2_of_fraction(x: Expr) -> Expr:
    """2**floor(x) * 2**f with f in 0..1: no bounds are needed, the instructions take whatever comes."""
    f = Unary(FRACTION, x, DType.f32)
    return Binary(LDEXP, f * _horner(f, _POWER_ABOVE) + _f(1.0), x, DType.f32)


def is_function(op: str) -> bool:
    """Whether an f32 is expanded into a long chain of instructions."""
    return op in _EXPANSIONS


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
    """2**n * exp(r) with r in -log(2)/2..log(2)/2."""
    x = _clamp(x, -104.0, 89.0)
    n = (x * _f(_LOG2E) + _f(_MAGIC)) - _f(_MAGIC)
    r = (x - n * _f(_LN2_HI)) - n * _f(_LN2_LO)
    return Binary(LDEXP, _horner(r, _EXP), n, DType.f32)


def _exp2(x: Expr) -> Expr:
    """2**n * 2**f with f in -1/2..1/2: cheaper than exp, as f is exact."""
    x = _clamp(x, -151.0, 129.0)
    n = unary("round", x)
    f = x - n
    return Binary(LDEXP, f * _horner(f, _POWER_TAIL) + _f(1.0), n, DType.f32)


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
    """h / (h + 1) where 2 h = exp(2 |x|) - 1: its error fades towards 1; near 0 the quotient only corrects h."""
    size = unary("abs", x)
    twice = binary("min", size + size, _f(2 * _TANH_ONE))
    shifted = twice * _f(_LOG2E) + _f(_MAGIC_POWER - 1.0)  # n, and an exponent of n - 1
    n, half_power = shifted - _f(_MAGIC_POWER - 1.0), _exponent(shifted)
    r = twice - n * _f(_LN2)
    half = ((r * r) * _horner(r, _GROWTH_TAIL) + r) * half_power + (half_power - _f(0.5))
    quotient = half / (half + _f(1.0))
    return _with_sign(select(half < _f(0.4), half - half * quotient, quotient), x)


def _erf(x: Expr) -> Expr:
    """1 - exp(-t) where t = |x| + |x| p(|x|); near 0 it is |x| and a small correction."""
    size = binary("min", unary("abs", x), _f(_ERF_ONE))
    slope = _horner(size, _ERF)
    t = size * slope + size
    shifted = _f(_MAGIC_POWER) - t * _f(_LOG2E)
    n, power = shifted - _f(_MAGIC_POWER), _exponent(shifted)
    r = -t - n * _f(_LN2)
    part = size + (size * slope + (n * _f(_LN2) - (r * r) * _horner(r, _GROWTH_TAIL)))
    return _with_sign(part * power + (_f(1.0) - power), x)


def _gelu(x: Expr) -> Expr:
    """x (1 + erf(x / sqrt 2)) / 2; past the end of the quotient erf grows like x, up to 1."""
    square = binary("min", x * x, _f(_NORMAL_END**2))
    normal = x * (_horner(square, _NORMAL_P) / _horner(square, _NORMAL_Q))
    half = x * _f(0.5)
    return half * _clamp(normal, -1.0, 1.0) + half


def _exponent(shifted: Expr) -> Expr:
    """2**(m - 127) of the whole number m that a magic number left in the low bits."""
    return Reinterpret(binary("shl", Reinterpret(shifted, DType.i32), _i(23)), DType.f32)


def logistic(x: Expr) -> Expr:
    """1 / (1 + exp(-x)) from a power that never overflows."""
    power = unary("exp", -unary("abs", x))
    return select(x < 0.0, power, 1.0) / (power + 1.0)


def _sigmoid(x: Expr) -> Expr:
    """2**n / (2**n + exp(r)) where x = n log 2 - r: nothing overflows, tiny results keep their digits."""
    x = _clamp(x, -104.0, 30.0)
    n = (x * _f(_LOG2E) + _f(_MAGIC)) - _f(_MAGIC)
    r = (n * _f(_LN2_HI) - x) + n * _f(_LN2_LO)
    power = Binary(LDEXP, _f(1.0), n, DType.f32)
    tail = (r * r) * _horner(r, _EXP_TAIL) + r
    # 1 + power + tail, in two parts with few digits of which the smaller first takes the tail: rounded hardly twice.
    most = binary("max", power, _f(0.5)) + _f(0.5)
    total = most + (tail + binary("min", power, _f(0.5)))
    return power / total


def _with_sign(magnitude: Expr, x: Expr) -> Expr:
    """A number that is not negative, with the sign of x."""
    sign = binary("and", Reinterpret(x, DType.i32), _i(-(2**31)))
    return Reinterpret(binary("or", Reinterpret(magnitude, DType.i32), sign), DType.f32)


def _sin(x: Expr) -> Expr:
    return select(binary("eq", x, _f(0.0)), x, _quarter(x, 0))  # keeps the sign of zero


def _cos(x: Expr) -> Expr:
    return _quarter(x, 1)


def _quarter(x: Expr, ahead: int) -> Expr:
    """The sine of x + ahead pi / 2, from the sine and the cosine of what is left after whole quarters of a turn."""
    shifted = x * _f(2 / math.pi) + _f(_MAGIC)
    n = shifted - _f(_MAGIC)
    quarter = Reinterpret(shifted, DType.i32) + _i(ahead)
    r = x
    for part in _QUARTER:
        r = r - n * _f(part)
    square = r * r
    sine = (r * square) * _horner(square, _SIN) + r
    cosine = (square * square) * _horner(square, _COS) + (square * _f(-0.5) + _f(1.0))
    value = select(binary("eq", binary("and", quarter, _i(1)), _i(0)), sine, cosine)
    sign = binary("shl", binary("and", quarter, _i(2)), _i(30))
    return Reinterpret(binary("xor", Reinterpret(value, DType.i32), sign), DType.f32)


_EXPANSIONS = {
    "sin": _sin,
    "cos": _cos,
    "exp": _exp,
    "exp2": _exp2,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "gelu": _gelu,
    "sigmoid": _sigmoid,
}
