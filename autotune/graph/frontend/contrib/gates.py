"""Gates: what scales features by a function of others, as hybrid and hyper-connected decoders have them."""

from __future__ import annotations

import math

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.contrib.activation import swiglu
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.tensor import DType


@contributed("SwiGLU", inputs=2)
def swiglu_of_halves(node: OnnxNode) -> str:
    """Of a gate and what it lets through, which may be the halves of one tensor."""
    gate = node.input(0)
    shape = node.builder.values[gate].shape
    if node.given(1):
        up = node.input(1)
    elif not shape or shape[-1] % 2:
        raise ModelError(f"{node.label}: data of shape {shape} has no halves")
    else:
        lead, half = tuple(map(range, shape[:-1])), shape[-1] // 2
        gate, up = (node.sliced(gate, (*lead, part)) for part in (range(half), range(half, 2 * half)))
    node.attr_int("round_activation", 0)  # to halves, in between: as another operator of ONNX Runtime would
    limit = node.attr_float("limit", 0.0)
    alpha, beta = node.attr_float("activation_alpha", 1.0), node.attr_float("activation_beta", 0.0)
    return swiglu(node, gate, up, alpha, beta, limit if limit > 0 else math.inf)


@contributed("GatedAdd", inputs=4)
def gated_add(node: OnnxNode) -> str:
    """x + y * gate, a gate for each row."""
    if node.given(3):
        raise UnsupportedError(f"{node.label}: input 3 (gate_weight) is not supported, ONNX Runtime's CPU refuses it")
    shape = node.shape()
    if node.shape(1) != shape or node.shape(2) != (*shape[:-1], 1):
        raise ModelError(f"{node.label}: gates of shape {node.shape(2)} for data {shape} and {node.shape(1)}")
    return node.emit("add", node.input(0), node.emit("mul", node.input(1), node.input(2)))


@contributed("ScaledSiLU", inputs=2)
def scaled_silu(node: OnnxNode) -> str:
    """swish(scale x): by a number that the run gives, or else by `alpha`."""
    x = node.input(0)
    alpha = node.attr_float("alpha", 1.0)
    if node.given(1):
        scale = node.converted(node.reshaped(node.input(1), ()), DType(node.value().dtype))
        x = node.emit("mul", x, scale)
    elif alpha != 1.0:
        x = node.emit("mul", x, node.scalar(alpha, x))
    return node.emit("swish", x, alpha=1.0)


@contributed("GatedRMSNorm", inputs=3)
def gated_rms_norm(node: OnnxNode) -> str:
    """Heads normalised each for itself, times silu or sigmoid of a gate, in f32: behind linear attention."""
    shape, width = node.shape(), math.prod(node.shape(1))
    if not shape or node.rank(1) != 1 or not width or shape[-1] % width or node.shape(2) != shape:
        raise ModelError(f"{node.label}: data {shape}, scale {node.shape(1)} and gate {node.shape(2)} do not fit")
    activation = node.attr_string("activation", "silu")
    if activation not in ("silu", "swish", "sigmoid"):
        raise ModelError(f"{node.label}: unknown activation '{activation}'")
    heads = (*shape[:-1], shape[-1] // width, width)
    x, scale, gate = (node.converted(node.input(n), DType.f32) for n in range(3))
    epsilon = node.attr_float("epsilon", 1e-5)
    result = node.emit("rms_norm", node.reshaped(x, heads), scale, axis=len(heads) - 1, epsilon=epsilon)
    gate = node.emit("sigmoid", gate) if activation == "sigmoid" else node.emit("swish", gate, alpha=1.0)
    result = node.emit("mul", node.reshaped(result, shape), gate)
    return node.converted(result, DType(node.value().dtype))
