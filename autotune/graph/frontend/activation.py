"""Activations: elementwise functions of one tensor, some with bounds or a slope."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.tensor import DType

_PLAIN = {
    "HardSwish": "hard_swish",
    "Mish": "mish",
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Softplus": "softplus",
}


@converts(*_PLAIN)
def plain(node: OnnxNode) -> str:
    return node.emit(_PLAIN[node.op], node.input(0))


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
            bound = node.constant(position, name).reshape(())
            if float(bound) != bound.item():
                return _clip_by_values(node)  # an i64 that no float holds
            bounds.append(float(bound))
        else:
            bounds.append(node.attr_float(name, default))
    low, high = bounds
    if not dtype.is_float:  # a bound that no element passes is none: as a float, the end of the range may lie beyond it
        info = np.iinfo(dtype.numpy)
        low, high = (low if low > info.min else -math.inf), (high if high < info.max else math.inf)
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
    """The slope broadcasts; before opset 7 a row of slopes, one per channel, is along axis 1."""
    slope = node.input(1)
    if node.opset < 7 and node.rank() > 1 and len(node.shape(1)) == 1 and math.prod(node.shape(1)) > 1:
        slope = node.reshaped(slope, (1, math.prod(node.shape(1)), *(1,) * (node.rank() - 2)))
    return node.emit("prelu", node.input(0), slope)


@converts("Elu")
def elu(node: OnnxNode) -> str:
    return node.emit("elu", node.input(0), alpha=node.attr_float("alpha", 1.0))


@converts("Selu")
def selu(node: OnnxNode) -> str:
    """gamma * elu(x, alpha)."""
    x = node.input(0)
    old = node.opset < 6
    gamma = node.attr_float("gamma", 1.0507 if old else 1.05070102214813232421875)
    alpha = node.attr_float("alpha", 1.6732 if old else 1.67326319217681884765625)
    return node.emit("mul", node.emit("elu", x, alpha=alpha), node.scalar(gamma, x))


@converts("Softsign")
def softsign(node: OnnxNode) -> str:
    x = node.input(0)
    return node.emit("div", x, node.emit("add", node.emit("abs", x), node.scalar(1.0, x)))


@converts("Celu")
def celu(node: OnnxNode) -> str:
    return node.emit("celu", node.input(0), alpha=node.attr_float("alpha", 1.0))


@converts("ThresholdedRelu")
def thresholded_relu(node: OnnxNode) -> str:
    return node.emit("thresholded_relu", node.input(0), alpha=node.attr_float("alpha", 1.0))


@converts("Shrink")
def shrink(node: OnnxNode) -> str:
    lambd, bias = node.attr_float("lambd", 0.5), node.attr_float("bias", 0.0)
    return node.emit("shrink", node.input(0), lambd=lambd, bias=bias)


@converts("Swish", "SwiGLU")
def swish(node: OnnxNode) -> str:
    """SwiGLU multiplies the swish of the first operand with the second."""
    gate = node.emit("swish", node.input(0), alpha=node.attr_float("alpha", 1.0))
    if node.op == "Swish":
        return gate
    if node.shape(0) != node.shape(1):
        raise ModelError(f"{node.label}: shapes {node.shape(0)} and {node.shape(1)} differ; SwiGLU does not broadcast")
    return node.emit("mul", gate, node.input(1))
