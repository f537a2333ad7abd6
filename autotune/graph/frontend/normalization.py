"""Normalisations: BatchNormalization as scale and shift, LRN, and what has no effect at inference."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.ir import Array


@converts("BatchNormalization")
def batch_normalization(node: OnnxNode) -> str:
    """scale * (x - mean) / sqrt(var + epsilon) + bias, its two constants computed in float64."""
    if node.attr_int("training_mode", 0):
        raise UnsupportedError(f"{node.label}: training_mode=1; export the model for inference")
    if not node.attr_int("spatial", 1):
        raise UnsupportedError(f"{node.label}: spatial=0")
    if node.rank() < 2:
        raise ModelError(f"{node.label}: data of shape {node.shape()} has no channel axis")
    channels = node.shape()[1]
    for position in range(1, 5):
        if node.shape(position) != (channels,):
            raise ModelError(f"{node.label}: input {position} has shape {node.shape(position)}, needs ({channels},)")
    per_channel = (1, channels, *(1,) * (node.rank() - 2))
    epsilon = node.attr_float("epsilon", 1e-5)
    if all(node.is_constant(position) for position in range(1, 5)):
        arrays = _scale_and_shift(node, epsilon)
        scale, shift = (node.new_constant(array.reshape(per_channel)) for array in arrays)
    else:
        variance_name = node.emit("add", node.input(4), node.scalar(epsilon, node.input(4)))
        ratio = node.emit("div", node.input(1), node.emit("sqrt", variance_name))
        offset = node.emit("sub", node.input(2), node.emit("mul", node.input(3), ratio))
        scale, shift = node.reshaped(ratio, per_channel), node.reshaped(offset, per_channel)
    return node.emit("add", node.emit("mul", node.input(0), scale), shift)


def _scale_and_shift(node: OnnxNode, epsilon: float) -> tuple[Array, Array]:
    arrays = [node.constant(position, "statistics") for position in range(1, 5)]
    with np.errstate(all="ignore"):  # infinities and NaNs of the model are the model's
        gamma, beta, mean, variance = (array.astype(np.float64) for array in arrays)
        factor = gamma / np.sqrt(variance + epsilon)
        return factor.astype(arrays[0].dtype), (beta - mean * factor).astype(arrays[0].dtype)


@converts("LRN")
def lrn(node: OnnxNode) -> str:
    return node.emit(
        "lrn",
        node.input(0),
        size=node.attr_int("size", 0),
        alpha=node.attr_float("alpha", 1e-4),
        beta=node.attr_float("beta", 0.75),
        bias=node.attr_float("bias", 1.0),
    )


@converts("LayerNormalization")
def layer_normalization(node: OnnxNode) -> str:
    """Mean and variance over the trailing axes, then scale and bias."""
    x = node.input(0)
    axis = node.axis(node.attr_int("axis", -1), node.rank())
    axes = tuple(range(axis, node.rank()))
    centred = node.emit("sub", x, node.emit("reduce_mean", x, axes=axes, keepdims=True))
    variance = node.emit("reduce_mean", node.emit("mul", centred, centred), axes=axes, keepdims=True)
    shifted = node.emit("add", variance, node.scalar(node.attr_float("epsilon", 1e-5), x))
    result = node.emit("mul", node.emit("div", centred, node.emit("sqrt", shifted)), node.input(1))
    return node.emit("add", result, node.input(2)) if node.given(2) else result


@converts("InstanceNormalization")
def instance_normalization(node: OnnxNode) -> str:
    x, axes = node.input(0), tuple(range(2, node.rank()))
    per_channel = (1, node.shape()[1], *(1,) * len(axes))
    centred = node.emit("sub", x, node.emit("reduce_mean", x, axes=axes, keepdims=True))
    variance = node.emit("reduce_mean", node.emit("mul", centred, centred), axes=axes, keepdims=True)
    shifted = node.emit("add", variance, node.scalar(node.attr_float("epsilon", 1e-5), x))
    result = node.emit("div", centred, node.emit("sqrt", shifted))
    result = node.emit("mul", result, node.reshaped(node.input(1), per_channel))
    return node.emit("add", result, node.reshaped(node.input(2), per_channel))


@converts("Identity")
def identity(node: OnnxNode) -> str:
    return node.input(0)


@converts("Dropout")
def dropout(node: OnnxNode) -> tuple[str, str]:
    """Identity at inference; the mask (all true) is there if somebody reads it."""
    if node.given(2) and bool(node.constant(2, "training_mode")):
        raise UnsupportedError(f"{node.label}: training_mode=1; export the model for inference")
    if len(node.proto.output) < 2 or not node.proto.output[1]:
        return node.input(0), ""
    if node.opset >= 10:
        return node.input(0), node.new_constant(np.broadcast_to(np.True_, node.shape()))
    return node.input(0), node.constant_like(1, node.input(0), node.shape())
