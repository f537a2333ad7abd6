"""Elementwise operators: unary, binary with NumPy broadcasting, n-ary as chains, activations."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.source import dtype_of
from autotune.tensor import DType

_UNARY = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Log": "log", "Sqrt": "sqrt",
          "Erf": "erf", "Neg": "neg", "Abs": "abs", "Reciprocal": "reciprocal", "Floor": "floor", "Ceil": "ceil",
          "HardSwish": "hard_swish"}  # fmt: skip
_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow"}
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
    """max(x, 0) + alpha * (exp(min(x, 0)) - 1)."""
    x = node.input(0)
    decay = node.emit("exp", node.emit("min", x, node.scalar(0.0, x)))
    negative = node.emit(
        "mul", node.emit("sub", decay, node.scalar(1.0, x)), node.scalar(node.attr_float("alpha", 1.0), x)
    )
    return node.emit("add", node.emit("relu", x), negative)


@converts("Softplus")
def softplus(node: OnnxNode) -> str:
    """max(x, 0) + log(1 + exp(-|x|)): no overflow."""
    x = node.input(0)
    tail = node.emit("exp", node.emit("neg", node.emit("abs", x)))
    return node.emit("add", node.emit("relu", x), node.emit("log", node.emit("add", tail, node.scalar(1.0, x))))


@converts("Where")
def where(node: OnnxNode) -> str:
    return node.emit("where", node.input(0), node.input(1), node.input(2))


@converts("Cast")
def cast(node: OnnxNode) -> str:
    target = dtype_of(node.attr_int("to", 0), node.label)
    return node.input(0) if target.value == node.value().dtype else node.emit("cast", node.input(0), to=target.value)
