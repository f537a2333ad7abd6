"""Arithmetic, comparison, logic and conversion, element by element, with NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from autotune.errors import WorkloadError
from autotune.ops.broadcast import broadcast_shapes, element
from autotune.ops.checks import flag, floating, integer, numeric, require, same_dtype, word
from autotune.ops.registry import Needed, operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Reinterpret, binary, cast, select, unary
from autotune.tensor.formats import ROUNDINGS, decoded, encoded
from autotune.tensor.stage import Tensor, compute
from autotune.tensor.storage import INTEGER_BITS, width

Point = Callable[..., Expr]
_READ_AS = dict.fromkeys(INTEGER_BITS, DType.i32)
_FUNCTIONS = (
    "exp", "log", "sqrt", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
    "atanh", "floor", "ceil", "round", "isnan", "isinf",
)  # fmt: skip


def pointwise(op: str, tensors: Sequence[Tensor], fn: Point) -> Tensor:
    """`fn` of one element of each tensor, broadcast to their common shape."""
    shape = broadcast_shapes(op, [t.shape for t in tensors])
    return compute(shape, lambda *i: fn(*(element(t, i, shape) for t in tensors)), name=op)


def _binary(name: str, code: str, check: Callable[[str, Tensor], DType] | None = numeric, *, traits: str = "") -> None:
    @operator(name, elementwise=True, operands="a b", traits=traits)
    def define(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        same_dtype(name, inputs)
        if check is not None:
            check(name, inputs[0])
        return pointwise(name, inputs, lambda a, b: binary(code, a, b))


def _integer(op: str, t: Tensor) -> DType:
    require(t.dtype.is_int, f"{op}: needs integers, got {t.dtype}; cast first")
    return t.dtype


def _boolean(op: str, t: Tensor) -> DType:
    require(t.dtype is DType.bool, f"{op}: needs bool, got {t.dtype}; cast first")
    return t.dtype


for _name in ("add", "mul", "min", "max"):
    _binary(_name, _name, traits="commutative")
for _name in ("sub", "div", "pow"):
    _binary(_name, _name)
for _name, _code in {"less": "lt", "less_or_equal": "le", "greater": "gt", "greater_or_equal": "ge"}.items():
    _binary(_name, _code)
_binary("equal", "eq", None)
for _name in ("and", "or", "xor"):
    _binary(_name, _name, _boolean)
    _binary(f"bitwise_{_name}", _name, _integer)


def _unary(name: str, fn: Callable[[Expr], Expr], check: Callable[[str, Tensor], DType] = floating) -> None:
    @operator(name, elementwise=True)
    def define(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        check(name, inputs[0])
        return pointwise(name, inputs, fn)


for _name in _FUNCTIONS:
    _unary(_name, partial(unary, _name))
_unary("reciprocal", lambda x: 1.0 / x)
_unary("neg", lambda x: unary("neg", x), numeric)
_unary("abs", lambda x: unary("abs", x), numeric)
_unary("sign", lambda x: select(x > 0, 1, select(x < 0, -1, x)), numeric)
_unary("not", lambda x: unary("not", x), _boolean)
_unary("bitwise_not", lambda x: unary("not", x), _integer)


@operator("mod", elementwise=True, operands="a b", fmod=False)
def mod(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The remainder with the sign of b, as Python's `%`; with `fmod` that of a, as C's. An integer modulo 0 is 0."""
    dtype = numeric("mod", inputs[0])
    same_dtype("mod", inputs)
    if not flag("mod", attrs, "fmod"):
        return pointwise("mod", inputs, lambda a, b: _python_mod(a, b) if dtype.is_float else a % b)
    return pointwise("mod", inputs, _float_fmod if dtype.is_float else _integer_fmod)


def _python_mod(a: Expr, b: Expr) -> Expr:
    """a - floor(a / b) * b, where a zero has the sign of b."""
    rest = a % b
    return select(binary("eq", rest, 0.0), b * 0.0, rest)


def _integer_fmod(a: Expr, b: Expr) -> Expr:
    """a - trunc(a / b) * b; 0 when b is 0."""
    return select(binary("eq", b, 0), 0, a - binary("truncdiv", a, b) * b)


def _float_fmod(a: Expr, b: Expr) -> Expr:
    """Exact: the remainder of two positive numbers, with the sign of a."""
    rest = unary("abs", a) % unary("abs", b)
    signed = select(a < 0.0, -rest, rest)
    return select(binary("eq", rest, 0.0), a * 0.0, signed)


@operator("bit_shift", elementwise=True, operands="a b", direction=Needed.name)
def bit_shift(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """a shifted by b bits to the left or right; by the width or more nothing is left."""
    _integer("bit_shift", inputs[0])
    same_dtype("bit_shift", inputs)
    code = "shl" if word("bit_shift", attrs, "direction", ("left", "right")) == "left" else "shr"
    return pointwise("bit_shift", inputs, lambda a, b: binary(code, a, b))


@operator("where", elementwise=True, operands="condition a b")
def where(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """a where the condition holds, else b."""
    _boolean("where", inputs[0])
    same_dtype("where", inputs[1:])
    return pointwise("where", inputs, select)


@operator(
    "until", elementwise=True, operands="data end", axis=Needed.integer, rare="rest", rest="zero", traits="placed",
)  # fmt: skip
def until(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """data before position `end` along an axis; zeros from there on, whatever data is.

    `end` is i64 and broadcasts to data, along the axis of extent 1: one end for all, or one for each batch. Where
    nobody reads the `rest`, it may be "any": a kernel leaves what lay there, most of all where that is much.
    """
    data, end = inputs
    axis = integer("until", attrs, "axis")
    word("until", attrs, "rest", ("zero", "any"))
    require(0 <= axis < len(data.shape), f"until: axis={axis} is none of data of shape {data.shape}")
    skip = len(data.shape) - len(end.shape)
    one = end.dtype is DType.i64 and skip >= 0 and (axis < skip or end.shape[axis - skip] == 1)
    fits = one and broadcast_shapes("until", (data.shape, end.shape)) == data.shape
    require(fits, f"until: end must be i64 of one position along axis {axis} of data, got {end.dtype}{end.shape}")

    def body(*i: Expr) -> Expr:
        own = tuple(e if extent > 1 else 0 for e, extent in zip(i[skip:], end.shape, strict=True))
        return select(i[axis] < end[own], data[i], 0)

    return compute(data.shape, body, name="until")


@operator("cast", elementwise=True, to=Needed.name)
def cast_(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The same numbers in another dtype; floats are truncated to integers, bool is `x != 0`."""
    to, own = _target("cast", attrs), inputs[0].dtype
    require(not to.is_storage or to is own, f"cast: numbers become {to} by encode")
    if own.is_storage and to is not own:
        return pointwise("cast", inputs, lambda x: decoded(x, to))
    return pointwise("cast", inputs, lambda x: cast(to, x))


@operator("encode", elementwise=True, to="f8e4m3fn", saturate=True, rounding="up")
def encode(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The same numbers in a storage type: what is beyond its largest number becomes that one, or infinity or NaN.

    `rounding` is that of powers of two (f8e8m0): up, down or nearest. All others round half to even.
    """
    to, own = _target("encode", attrs), inputs[0].dtype
    require(to.is_storage, f"encode: {to} is no storage type; use cast")
    saturate, rounding = flag("encode", attrs, "saturate"), word("encode", attrs, "rounding", ROUNDINGS)

    def point(x: Expr) -> Expr:
        return encoded(decoded(x, _READ_AS.get(own, DType.f32)) if own.is_storage else x, to, saturate, rounding)

    return pointwise("encode", inputs, point)


@operator("bit_cast", elementwise=True, to=Needed.name)
def bit_cast(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The same bits in another dtype of equal width."""
    to, own = _target("bit_cast", attrs), inputs[0].dtype
    require(width(to) == width(own), f"bit_cast: {own} has {width(own)} bits, {to} has {width(to)}")
    return pointwise("bit_cast", inputs, lambda x: x if to is own else Reinterpret(x, to))


def _target(op: str, attrs: Mapping[str, Any]) -> DType:
    try:
        return DType(attrs["to"])
    except ValueError:
        known = ", ".join(d.value for d in DType)
        raise WorkloadError(f"{op}: unknown dtype {attrs['to']!r}; known: {known}") from None


@operator("layout", elementwise=True)
def layout(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The same values: where a tensor changes its physical form."""
    return pointwise("layout", inputs, lambda x: x)
