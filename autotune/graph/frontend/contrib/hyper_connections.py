"""Hyper-connections: several residual streams, mixed before and behind each block; and EngramGate beside them."""

from __future__ import annotations

import math

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.tensor import DType

LEAST_PRODUCT = 1e-6
"""What the size of a product is at least before its root is taken."""


@contributed("HyperConnectionPreMix", inputs=2)
def pre_mix(node: OnnxNode) -> str:
    """reduction_scale times the sum of all streams, each times its gate or those of its features; in f32."""
    streams, grouped = _streams(node)
    mixed = node.emit("mul", streams, _gates(node, 1, grouped))
    total = node.emit("reduce_sum", mixed, axes=(len(grouped) - 2,), keepdims=False)
    scale = node.attr_float("reduction_scale", 1.0)
    total = total if scale == 1.0 else node.emit("mul", total, node.scalar(scale, total))
    return node.converted(total, DType(node.value().dtype))


@contributed("HyperConnectionPostMix", inputs=4)
def post_mix(node: OnnxNode) -> str:
    """The streams, mixed by a matrix if there is one, each plus the block's output times its gates; in f32."""
    streams, grouped = _streams(node)
    *lead, count, width = grouped
    if node.shape(1) != (*lead, width):
        raise ModelError(f"{node.label}: a block's output of shape {node.shape(1)} for streams {grouped}")
    if node.given(3):
        if node.shape(3) != (*lead, count, count):
            raise ModelError(f"{node.label}: a matrix of shape {node.shape(3)} for streams {grouped}")
        batch = math.prod(lead)
        matrix = node.reshaped(node.converted(node.input(3), DType.f32), (batch, count, count))
        rows = node.reshaped(streams, (batch, count, width))
        streams = node.reshaped(node.emit("matmul", matrix, rows, trans_a=True, trans_b=False), grouped)
    output = node.reshaped(node.converted(node.input(1), DType.f32), (*lead, 1, width))
    total = node.emit("add", streams, node.emit("mul", _gates(node, 2, grouped), output))
    return node.converted(node.reshaped(total, node.shape()), DType(node.value().dtype))


@contributed("BranchwiseRMSNorm", inputs=2)
def branchwise_rms_norm(node: OnnxNode) -> str:
    """Each stream normalised for itself, in f32."""
    streams, grouped = _streams(node)
    *_, count, width = grouped
    ones = node.constant_like(1.0, streams, (width,))
    result = node.emit("rms_norm", streams, ones, axis=len(grouped) - 1, epsilon=node.attr_float("epsilon", 1e-5))
    if node.given(1):
        if node.shape(1) not in ((width,), (count, width), (count * width,)):
            raise ModelError(f"{node.label}: a scale of shape {node.shape(1)} for streams {grouped}")
        scale = node.input(1) if node.shape(1) == (width,) else node.reshaped(node.input(1), (count, width))
        result = node.emit("mul", result, node.converted(scale, DType.f32))
    return node.converted(node.reshaped(result, node.shape()), DType(node.value().dtype))


def _streams(node: OnnxNode) -> tuple[str, tuple[int, ...]]:
    """Streams (..., count, features), f32, and that shape; they may come behind each other (`num_branches`)."""
    shape, count = node.shape(), node.attr_int("num_branches", 0)
    if len(shape) < (1 if count else 2) or count < 0 or (count and shape[-1] % count):
        raise ModelError(f"{node.label}: num_branches={count} of data of shape {shape}")
    grouped = (*shape[:-1], count, shape[-1] // count) if count else shape
    return node.reshaped(node.converted(node.input(0), DType.f32), grouped), grouped


def _gates(node: OnnxNode, position: int, grouped: tuple[int, ...]) -> str:
    """f32 that broadcasts to the streams: a gate for each, or for each of its features."""
    given, (*lead, count, width) = node.shape(position), grouped
    forms = {(*lead, count): (*lead, count, 1), (*lead, count, 1): (*lead, count, 1), grouped: grouped,
             (*lead, count * width): grouped}  # fmt: skip
    if given not in forms:
        raise ModelError(f"{node.label}: gates of shape {given} for streams {grouped}")
    return node.reshaped(node.converted(node.input(position), DType.f32), forms[given])


@contributed("EngramGate", inputs=6)
def engram_gate(node: OnnxNode) -> tuple[str, str]:
    """(gate * value, the same normalised): sigmoid of the signed root of how alike a key and a query are; in f32."""
    shape = node.shape()
    if len(shape) != 4 or node.shape(1) != shape or node.shape(2) != (*shape[:2], shape[3]):
        raise ModelError(f"{node.label}: keys {shape}, queries {node.shape(1)} and values {node.shape(2)} do not fit")
    if node.wanted(1) and not node.given(5):
        raise ModelError(f"{node.label}: gated_value_normed is asked for, conv_norm_scale (input 5) is left out")
    key, query = (_normalised(node, node.converted(node.input(n), DType.f32), 3 + n) for n in range(2))
    alike = node.emit("reduce_sum", node.emit("mul", key, query), axes=(3,), keepdims=True)
    alike = node.emit("mul", alike, node.scalar(1 / math.sqrt(shape[3]), alike))
    size = node.emit("max", node.emit("abs", alike), node.scalar(LEAST_PRODUCT, alike))
    gate = node.emit("sigmoid", node.emit("mul", node.emit("sign", alike), node.emit("sqrt", size)))
    value = node.reshaped(node.converted(node.input(2), DType.f32), (*shape[:2], 1, shape[3]))
    gated, own = node.emit("mul", gate, value), DType(node.value().dtype)
    normed = node.converted(_normalised(node, gated, 5), own) if node.wanted(1) else ""
    return node.converted(gated, own), normed


def _normalised(node: OnnxNode, x: str, weight: int) -> str:
    """Each stream by its root mean square, times a weight of its own."""
    shape = node.builder.values[x].shape
    if node.shape(weight) != shape[2:]:
        raise ModelError(f"{node.label}: a scale of shape {node.shape(weight)}, {shape[2:]} is needed")
    ones = node.constant_like(1.0, x, shape[3:])
    result = node.emit("rms_norm", x, ones, axis=3, epsilon=node.attr_float("epsilon", 1e-5))
    return node.emit("mul", result, node.converted(node.input(weight), DType.f32))
