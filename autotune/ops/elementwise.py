"""Operators whose every element depends on one element of each operand, with NumPy broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.errors import WorkloadError
from autotune.ops.broadcast import broadcast_shapes, element
from autotune.ops.checks import floating, number, numeric, require, same_dtype, word
from autotune.ops.registry import Needed, operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, const, maximum, minimum, select, unary
from autotune.tensor.stage import Tensor, compute

Point = Callable[..., Expr]


def _pointwise(op: str, tensors: Sequence[Tensor], fn: Point) -> Tensor:
    shape = broadcast_shapes(op, [t.shape for t in tensors])
    return compute(shape, lambda *i: fn(*(element(t, i, shape) for t in tensors)), name=op)


def _binary(name: str, code: str, check: Callable[[str, Tensor], DType] | None = numeric) -> None:
    @operator(name, elementwise=True, operands="a b")
    def define(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        same_dtype(name, inputs)
        if check is not None:
            check(name, inputs[0])
        return _pointwise(name, inputs, lambda a, b: binary(code, a, b))


def _boolean(op: str, t: Tensor) -> DType:
    require(t.dtype is DType.bool, f"{op}: needs bool, got {t.dtype}; cast first")
    return t.dtype


for _name in ("add", "sub", "mul", "div", "pow", "min", "max"):
    _binary(_name, _name)
for _name, _code in {"less": "lt", "less_or_equal": "le", "greater": "gt", "greater_or_equal": "ge"}.items():
    _binary(_name, _code)
_binary("equal", "eq", None)
for _name in ("and", "or", "xor"):
    _binary(_name, _name, _boolean)


def _unary(name: str, fn: Callable[[Expr], Expr], check: Callable[[str, Tensor], DType] = floating) -> None:
    @operator(name, elementwise=True)
    def define(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        check(name, inputs[0])
        return _pointwise(name, inputs, fn)


def _sigmoid(x: Expr) -> Expr:
    return 1.0 / (1.0 + unary("exp", -x))


for _name in ["tanh", "exp", "log", "sqrt", "erf", "floor", "ceil", "round", "sin", "cos", "isnan", "isinf"]:
    _unary(_name, lambda x, code=_name: unary(code, x))  # type: ignore[misc]
_unary("sigmoid", _sigmoid)
_unary("reciprocal", lambda x: 1.0 / x)
_unary("softplus", lambda x: maximum(x, 0.0) + unary("log", 1.0 + unary("exp", -unary("abs", x))))
_unary("hard_swish", lambda x: x * maximum(minimum(x * (1 / 6) + 0.5, 1.0), 0.0))
_unary("relu", lambda x: maximum(x, 0), numeric)
_unary("neg", lambda x: unary("neg", x), numeric)
_unary("abs", lambda x: unary("abs", x), numeric)
_unary("not", lambda x: unary("not", x), _boolean)


@operator("gelu", elementwise=True, approximate="none")
def gelu(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """0.5 x (1 + erf(x / sqrt 2)), or its tanh approximation."""
    floating("gelu", inputs[0])
    if word("gelu", attrs, "approximate", ("none", "tanh")) == "none":
        return _pointwise("gelu", inputs, lambda x: 0.5 * x * (1.0 + unary("erf", x * math.sqrt(0.5))))
    scale = math.sqrt(2 / math.pi)
    return _pointwise("gelu", inputs, lambda x: 0.5 * x * (1.0 + unary("tanh", scale * (x + 0.044715 * x * x * x))))


@operator("clip", elementwise=True, min=-math.inf, max=math.inf)
def clip(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """min(max(x, lower), upper): `max` wins when the bounds cross, and NaN stays NaN."""
    dtype = numeric("clip", inputs[0])
    low, high = number("clip", attrs, "min"), number("clip", attrs, "max")
    require(not math.isnan(low) and not math.isnan(high), "clip: a bound is NaN")

    def body(x: Expr) -> Expr:
        bounded = x if low == -math.inf else maximum(x, const(low, dtype))
        return bounded if high == math.inf else minimum(bounded, const(high, dtype))

    return _pointwise("clip", inputs, body)


@operator("leaky_relu", elementwise=True, alpha=0.01)
def leaky_relu(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x where x >= 0, else alpha x."""
    floating("leaky_relu", inputs[0])
    alpha = number("leaky_relu", attrs, "alpha")
    return _pointwise("leaky_relu", inputs, lambda x: select(x < 0.0, x * alpha, x))


@operator("elu", elementwise=True, alpha=1.0)
def elu(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x where x >= 0, else alpha (exp(x) - 1)."""
    floating("elu", inputs[0])
    alpha = number("elu", attrs, "alpha")
    return _pointwise("elu", inputs, lambda x: select(x < 0.0, (unary("exp", x) - 1.0) * alpha, x))


@operator("hard_sigmoid", elementwise=True, alpha=0.2, beta=0.5)
def hard_sigmoid(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """max(0, min(1, alpha x + beta))."""
    floating("hard_sigmoid", inputs[0])
    alpha, beta = number("hard_sigmoid", attrs, "alpha"), number("hard_sigmoid", attrs, "beta")
    return _pointwise("hard_sigmoid", inputs, lambda x: maximum(minimum(x * alpha + beta, 1.0), 0.0))


@operator("where", elementwise=True, operands="condition a b")
def where(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """a where the condition holds, else b."""
    _boolean("where", inputs[0])
    same_dtype("where", inputs[1:])
    return _pointwise("where", inputs, select)


@operator("cast", elementwise=True, to=Needed.name)
def cast_(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The same numbers in another dtype; floats are truncated to integers, bool is `x != 0`."""
    try:
        to = DType(attrs["to"])
    except ValueError:
        known = ", ".join(d.value for d in DType)
        raise WorkloadError(f"cast: unknown dtype {attrs['to']!r}; known: {known}") from None
    return _pointwise("cast", inputs, lambda x: cast(to, x))


@operator("layout", elementwise=True)
def layout(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The same values: where a tensor changes its physical form."""
    return _pointwise("layout", inputs, lambda x: x)
