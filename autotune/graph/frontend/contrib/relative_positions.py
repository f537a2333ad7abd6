"""What is added to scores for how far apart two tokens are: of T5, and with a gate, of WavLM and TNLR."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.contrib.attention import refuse
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.ir import Array


@contributed("RelativePositionBias", inputs=3)
def relative_position_bias(node: OnnxNode) -> str:
    """(1, heads, queries, keys) of a table that holds the buckets of one head after the other, whatever its shape says.

    Source: transformers' `T5Attention._relative_position_bucket`.
    """
    queries, keys = (node.constant_int(n, what) for n, what in ((1, "the query length"), (2, "the key length")))
    farthest, both = node.attr_int("max_distance", 0), node.attr_flag("is_bidirectional")
    if node.rank() != 2 or node.shape()[0] < (4 if both else 2):
        raise ModelError(f"{node.label}: a table of shape {node.shape()} has no buckets of heads")
    buckets, heads = node.shape()
    if min(queries, keys) < 0 or farthest <= buckets // (4 if both else 2):
        raise ModelError(f"{node.label}: max_distance={farthest} with {buckets} buckets, {queries} to {keys} tokens")
    table = node.reshaped(node.input(0), (heads, buckets))
    places = node.new_constant(buckets_of(queries, keys, buckets, farthest, both=both))
    return node.reshaped(node.emit("gather", table, places, axis=1), (1, heads, queries, keys))


def buckets_of(queries: int, keys: int, buckets: int, farthest: int, *, both: bool) -> Array:
    """(queries, keys): one for each distance up to a half of the buckets, then growing ones; those ahead apart."""
    ahead = np.arange(keys)[None] - np.arange(queries)[:, None]
    first = np.zeros_like(ahead)
    if both:
        buckets //= 2
        first, distance = np.where(ahead > 0, buckets, 0), np.abs(ahead)
    else:
        distance = np.maximum(-ahead, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / exact) / math.log(farthest / exact)
    far = np.minimum(exact + (ratio * (buckets - exact)).astype(np.int64), buckets - 1)
    return np.asarray(first + np.where(distance < exact, distance, far))


@contributed("GatedRelativePositionBias", inputs=7)
def gated_relative_position_bias(node: OnnxNode) -> str:
    """Biases (1, heads, queries, keys), each row times a gate that its query opens."""
    refuse(node, 6, "token_offset")
    heads, shape = node.attr_int("num_heads", 0), node.shape()
    if len(shape) != 3 or heads < 1 or shape[2] % heads or node.rank(3) != 2 or node.shape(3)[1] % 2:
        raise ModelError(f"{node.label}: {heads} heads of queries {shape} and a weight {node.shape(3)} do not fit")
    (batch, length, width), features = shape, node.shape(3)[1]
    query = node.reshaped(node.emit("add", node.input(0), node.input(1)), (batch, length, heads, width // heads))
    projected = node.emit("matmul", query, node.input(3), trans_a=False, trans_b=False)
    projected = node.reshaped(node.emit("add", projected, node.input(4)), (batch, length, heads, 2, features // 2))
    gates = node.emit("sigmoid", node.emit("reduce_sum", projected, axes=(4,), keepdims=False))
    gates = node.transposed(gates, (0, 2, 1, 3))
    lead = (range(batch), range(heads), range(length))
    update, reset = (node.sliced(gates, (*lead, range(n, n + 1))) for n in range(2))
    inner = node.emit("sub", node.emit("mul", reset, node.input(5)), node.scalar(1.0, reset))
    gate = node.emit("add", node.emit("mul", update, inner), node.scalar(2.0, update))
    return node.emit("mul", gate, node.input(2))
