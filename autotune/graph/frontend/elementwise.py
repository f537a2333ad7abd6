"""Elementwise operators: unary, binary with NumPy broadcasting, n-ary as chains, activations."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.source import dtype_of
from autotune.tensor import DType

_UNARY = {
    "Abs": "abs",
    "Ceil": "ceil",
    "Cos": "cos",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "HardSwish": "hard_swish",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "neg",
    "Not": "not",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sin": "sin",
    "Softplus": "softplus",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
}
_BINARY = {
    "Add": "add",
    "And": "and",
    "Div": "div",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_or_equal",
    "Less": "less",
    "LessOrEqual": "less_or_equal",
    "Mul": "mul",
    "Or": "or",
    "Sub": "sub",
    "Xor": "xor",
}
_NARY = {"Sum": "add", "Min": "min", "Max": "max"}


@converts(*_UNARY)
def unary(node: OnnxNode) -> str:
    return node.emit(_UNARY[node.op], node.input(0))


@converts(*_BINARY)
def binary(node: OnnxNode) -> str:
    return node.emit(_BINARY[node.op], node.input(0), node.input(1))


@converts(*_NARY, "Mean")
def nary(node: OnnxNode) -> str:
    result, *others = node.all_inputs()
    for other in others:
        result = node.emit(_NARY.get(node.op, "add"), result, other)
    if node.op == "Mean" and others:
        result = node.emit("div", result, node.scalar(len(others) + 1, result))
    return result


@converts("Clip")
def clip(node: OnnxNode) -> str:
    """Bounds are attributes before opset 11, inputs after; bounds known only at run time become max and min."""
    x, dtype = node.input(0), DType(node.value().dtype)
    bounds = []
    for position, name, default in ((1, "min", -math.inf), (2, "max", math.inf)):
        if node.given(position):
            if not node.is_constant(position):
                return _clip_by_values(node)
            if node.constant(position, name).size != 1:
                raise ModelError(f"{node.label}: '{name}' must be a scalar, not {node.shape(position)}")
            bounds.append(float(node.constant(position, name).reshape(())))
        else:
            bounds.append(node.attr_float(name, default))
    low, high = bounds
    if not dtype.is_float:  # integers have no infinities: an open side is the end of the dtype's range
        info = np.iinfo(dtype.numpy)
        low, high = max(low, float(info.min)), min(high, float(info.max))
    return node.emit("clip", x, min=low, max=high)


def _clip_by_values(node: OnnxNode) -> str:
    result = node.input(0)
    if node.given(1):
        result = node.emit("max", result, node.input(1))
    return node.emit("min", result, node.input(2)) if node.given(2) else result


@converts("Pow")
def power(node: OnnxNode) -> str:
    """The exponent may have another dtype; the result has that of the base."""
    base, exponent = node.value(0), node.value(1)
    if base.dtype == exponent.dtype:
        return node.emit("pow", base.name, exponent.name)
    if DType(base.dtype).is_float:
        return node.emit("pow", base.name, node.emit("cast", exponent.name, to=base.dtype))
    wide = DType.f64.value
    result = node.emit("pow", *(node.emit("cast", value.name, to=wide) for value in (base, exponent)))
    return node.emit("cast", result, to=base.dtype)


@converts("IsInf")
def isinf(node: OnnxNode) -> str:
    """Both signs, or one of them by comparison."""
    x = node.input(0)
    positive, negative = node.attr_int("detect_positive", 1), node.attr_int("detect_negative", 1)
    if positive and negative:
        return node.emit("isinf", x)
    if not positive and not negative:
        return node.new_constant(np.broadcast_to(np.False_, node.shape()))
    return node.emit("equal", x, node.scalar(math.inf if positive else -math.inf, x))


@converts("LeakyRelu")
def leaky_relu(node: OnnxNode) -> str:
    return node.emit("leaky_relu", node.input(0), alpha=node.attr_float("alpha", 0.01))


@converts("HardSigmoid")
def hard_sigmoid(node: OnnxNode) -> str:
    alpha, beta = node.attr_float("alpha", 0.2), node.attr_float("beta", 0.5)
    return node.emit("hard_sigmoid", node.input(0), alpha=alpha, beta=beta)


@converts("Gelu")
def gelu(node: OnnxNode) -> str:
    return node.emit("gelu", node.input(0), approximate=node.attr_string("approximate", "none"))


@converts("PRelu")
def prelu(node: OnnxNode) -> str:
    """max(x, 0) + slope * min(x, 0)."""
    x = node.input(0)
    zero = node.scalar(0.0, x)
    negative = node.emit("mul", node.emit("min", x, zero), node.input(1))
    return node.emit("add", node.emit("relu", x), negative)


@converts("Elu")
def elu(node: OnnxNode) -> str:
    return node.emit("elu", node.input(0), alpha=node.attr_float("alpha", 1.0))


@converts("Selu")
def selu(node: OnnxNode) -> str:
    """gamma * elu(x, alpha)."""
    x = node.input(0)
    gamma = node.scalar(node.attr_float("gamma", 1.05070102214813232421875), x)
    return node.emit("mul", node.emit("elu", x, alpha=node.attr_float("alpha", 1.67326319217681884765625)), gamma)


@converts("Softsign")
def softsign(node: OnnxNode) -> str:
    x = node.input(0)
    return node.emit("div", x, node.emit("add", node.emit("abs", x), node.scalar(1.0, x)))


@converts("Where")
def where(node: OnnxNode) -> str:
    return node.emit("where", node.input(0), node.input(1), node.input(2))


@converts("Cast", "CastLike")
def cast(node: OnnxNode) -> str:
    like = node.op == "CastLike"
    target = DType(node.value(1).dtype) if like else dtype_of(node.attr_int("to", 0), node.label)
    return node.input(0) if target.value == node.value().dtype else node.emit("cast", node.input(0), to=target.value)
