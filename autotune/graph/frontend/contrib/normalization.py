"""Normalisations of sums: of a residual, of embeddings; and the RMS one under its older name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.node import MICROSOFT, OnnxNode, contributed
from autotune.graph.frontend.normalization import rms_normalization


@contributed("SimplifiedLayerNormalization", inputs=2, domains=("", MICROSOFT))
def simplified_layer_normalization(node: OnnxNode) -> str:
    """What ONNX calls RMSNormalization since opset 23."""
    return rms_normalization(node)


@contributed("SkipLayerNormalization", inputs=5)
def skip_layer_normalization(node: OnnxNode) -> tuple[str, ...]:
    """(result, mean, 1 / deviation, sum) of input + skip + bias, over the last axis."""
    total = _sum(node, 4)
    beta = node.input(3) if node.given(3) else node.scalar(0.0, total)
    return _normalised(node, total, node.input(2), beta)


@contributed("SkipSimplifiedLayerNormalization", inputs=4)
def skip_simplified_layer_normalization(node: OnnxNode) -> tuple[str, ...]:
    """(result, none, none, sum): the statistics are not kept."""
    total = _sum(node, 3)
    epsilon = node.attr_float("epsilon", 1e-12)
    axis = len(node.builder.values[total].shape) - 1
    result = node.emit("rms_norm", total, node.input(2), axis=axis, epsilon=epsilon)
    for position in (1, 2):
        if node.wanted(position):
            raise ModelError(f"{node.label}: output {position} is one of training; leave it out")
    return result, "", "", total


@contributed("EmbedLayerNormalization", inputs=9)
def embed_layer_normalization(node: OnnxNode) -> tuple[str, ...]:
    """(result, tokens that count, sum) of the embeddings of words, positions and perhaps segments."""
    node.attr_int("mask_index_type", 0)  # which form of counts is declared; there is one
    total, count = _embedded(node, lambda rows, table: rows, node.input(8) if node.given(8) else None)
    return _normalised(node, total, node.input(5), node.input(6), statistics=False)[0], count, total


@contributed("QEmbedLayerNormalization", inputs=18)
def quantized_embed_layer_normalization(node: OnnxNode) -> tuple[str, str]:
    """The same of 8-bit tables and weights, whose scales and zero points come behind the mask."""

    def real(rows: str, table: int) -> str:
        scale, zero = (node.reshaped(node.input(table + n), ()) for n in (6, 11))
        return node.emit("dequantize", rows, scale, zero, to="f32")

    total, count = _embedded(node, real, None)
    gamma, beta = (real(node.input(n), n) for n in (5, 6))
    return _normalised(node, total, gamma, beta, statistics=False)[0], count


def _embedded(node: OnnxNode, real: Callable[[str, int], str], positions: str | None) -> tuple[str, str]:
    """(sum of the embeddings, tokens that count).

    Args:
        real: the real numbers of rows of the table at an input.
    """
    if node.rank() != 2:
        raise ModelError(f"{node.label}: the tokens must be (batch, positions), not {node.shape()}")
    batch, length = node.shape()
    total = node.emit("add", real(_looked_up(node, 2, node.input(0)), 2), real(_positions(node, length, positions), 3))
    if node.given(4):
        total = node.emit("add", total, real(_looked_up(node, 4, node.input(1)), 4))
    if not node.given(7):
        return total, node.new_constant(np.zeros(batch, np.int32))
    one = node.emit("equal", node.input(7), node.scalar(1, node.input(7)))
    return total, node.emit("reduce_sum", node.emit("cast", one, to="i32"), axes=(1,), keepdims=False)


def _sum(node: OnnxNode, bias: int) -> str:
    total = node.emit("add", node.input(0), node.input(1))
    return node.emit("add", total, node.input(bias)) if node.given(bias) else total


def _normalised(node: OnnxNode, total: str, gamma: str, beta: str, *, statistics: bool = True) -> tuple[str, ...]:
    """(result, mean, 1 / deviation, `total`), the statistics where the node gives them a name."""
    axis, epsilon = len(node.builder.values[total].shape) - 1, node.attr_float("epsilon", 1e-12)
    wanted = [n == 0 or (statistics and node.wanted(n)) for n in range(3)]
    found = [node.emit("layer_norm", total, gamma, beta, axis=axis, epsilon=epsilon, result=n) if wanted[n] else ""
             for n in range(3)]  # fmt: skip
    return *found, total


def _looked_up(node: OnnxNode, table: int, indices: str) -> str:
    rows = node.shape(table)[:1]
    node.must_lie(indices, tuple(-n for n in rows), rows, f"an index into input {table}")
    return node.emit("gather", node.input(table), indices, axis=0)


def _positions(node: OnnxNode, length: int, given: str | None) -> str:
    """Of the table of positions, the rows that are given, or the first ones."""
    if given is not None:
        return _looked_up(node, 3, given)
    rows, width = node.shape(3)
    if length > rows:
        raise ModelError(f"{node.label}: {length} positions, embeddings for {rows}")
    return node.sliced(node.input(3), (range(length), range(width)))
