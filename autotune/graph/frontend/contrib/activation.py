"""Gelu and its kin, and the activations that fused operators have behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.errors import UnsupportedError
from autotune.graph.frontend.node import OnnxNode, contributed

# ONNX name → (ours, the names of its numbers, their defaults)
_ACTIVATIONS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "Relu": ("relu", (), ()),
    "Sigmoid": ("sigmoid", (), ()),
    "Tanh": ("tanh", (), ()),
    "Softplus": ("softplus", (), ()),
    "LeakyRelu": ("leaky_relu", ("alpha",), (0.01,)),
    "Elu": ("elu", ("alpha",), (1.0,)),
    "ThresholdedRelu": ("thresholded_relu", ("alpha",), (1.0,)),
    "HardSwish": ("hard_swish", (), ()),
    "Silu": ("swish", ("alpha",), (1.0,)),
    "HardSigmoid": ("hard_sigmoid", ("alpha", "beta"), (0.2, 0.5)),
    "Clip": ("clip", ("min", "max"), (-math.inf, math.inf)),
}


@contributed("Gelu", inputs=1)
def gelu(node: OnnxNode) -> str:
    return node.emit("gelu", node.input(0), approximate="none")


@contributed("BiasGelu", inputs=2)
def bias_gelu(node: OnnxNode) -> str:
    return node.emit("gelu", node.emit("add", node.input(0), node.input(1)), approximate="none")


@contributed("FastGelu", inputs=2)
def fast_gelu(node: OnnxNode) -> str:
    """The approximation by tanh, of the data plus a bias if there is one."""
    x = node.emit("add", node.input(0), node.input(1)) if node.given(1) else node.input(0)
    return node.emit("gelu", x, approximate="tanh")


@contributed("QuickGelu", inputs=1)
def quick_gelu(node: OnnxNode) -> str:
    return node.emit("swish", node.input(0), alpha=node.attr_float("alpha", 1.702))


@contributed("BiasSoftmax", inputs=2)
def bias_softmax(node: OnnxNode) -> str:
    """softmax(data + bias) over all dimensions from `axis` on; where the bias is repeated, it has extents of 1."""
    total = node.emit("add", node.input(0), node.input(1))
    node.attr_int("is_inner_broadcast", 0)
    shape, axis = node.builder.values[total].shape, node.axis(node.attr_int("axis", 1), node.rank())
    flat = node.reshaped(total, (*shape[:axis], math.prod(shape[axis:])))
    return node.reshaped(node.emit("softmax", flat, axis=axis), shape)


def activated(node: OnnxNode, value: str, name: str, numbers: Sequence[float] = ()) -> str:
    """`value` through the activation that a fused operator names, "" for none.

    Args:
        numbers: its parameters, in the order of its ONNX attributes; those left out have their defaults.
    """
    if not name:
        return value
    if name not in _ACTIVATIONS:
        raise UnsupportedError(f"{node.label}: the attribute 'activation' is '{name}', not {', '.join(_ACTIVATIONS)}")
    op, names, defaults = _ACTIVATIONS[name]
    if len(numbers) > len(names):
        raise UnsupportedError(f"{node.label}: {name} with {len(numbers)} parameters, it has {len(names)}")
    given = (*numbers, *defaults[len(numbers) :])
    return node.emit(op, value, **dict(zip(names, given, strict=True)))


def swiglu(node: OnnxNode, gate: str, up: str, alpha: float, beta: float, limit: float, *, late: bool = False) -> str:
    """swish(min(gate, limit)) * (up within ±limit + beta); `late`: it is the swish that has the limit."""
    first = swiglu_gate(node, gate, alpha, limit, late=late)
    return node.emit("mul", first, swiglu_up(node, up, beta, limit))


def swiglu_gate(node: OnnxNode, gate: str, alpha: float, limit: float, *, late: bool = False) -> str:
    """The first factor of `swiglu`."""
    if limit < math.inf and not late:
        gate = node.emit("clip", gate, min=-math.inf, max=limit)
    result = node.emit("swish", gate, alpha=alpha)
    return node.emit("clip", result, min=-math.inf, max=limit) if limit < math.inf and late else result


def swiglu_up(node: OnnxNode, up: str, beta: float, limit: float) -> str:
    """The second factor of `swiglu`."""
    if limit < math.inf:
        up = node.emit("clip", up, min=-limit, max=limit)
    return node.emit("add", up, node.scalar(beta, up)) if beta else up
