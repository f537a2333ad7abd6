"""Operators of whole tensors: Inverse, UnfoldTensor, TorchEmbedding, BiasDropout."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode, contributed


@contributed("Inverse", inputs=1)
def inverse(node: OnnxNode) -> str:
    """Of each of the square matrices in the last two dimensions; no number where there is none."""
    return node.emit("inverse", node.input(0))


@contributed("UnfoldTensor", inputs=1)
def unfold_tensor(node: OnnxNode) -> str:
    """Slices along a dimension, a step apart: their number in its place, what they hold as the last dimension."""
    shape = node.shape()
    dim, size, step = (
        node.axis(node.attr_int("dim", -1), len(shape)),
        node.attr_int("size", 0),
        node.attr_int("step", 1),
    )
    if not shape or not 1 <= size <= shape[dim] or step < 1:
        raise ModelError(f"{node.label}: size={size} and step={step} along dimension {dim} of {shape}")
    places = np.arange(0, shape[dim] - size + 1, step)[:, None] + np.arange(size)
    found = node.emit("gather", node.input(0), node.new_constant(places), axis=dim)
    return node.transposed(found, (*(d for d in range(len(shape) + 1) if d != dim + 1), dim + 1))


@contributed("TorchEmbedding", inputs=4)
def torch_embedding(node: OnnxNode) -> str:
    """Rows of a table; what else torch's Embedding is told is for training."""
    rows = node.shape()[0]
    node.must_lie(node.input(1), (-rows,), (rows,), "an index")
    return node.emit("gather", node.input(0), node.input(1), axis=0)


@contributed("BiasDropout", inputs=5)
def bias_dropout(node: OnnxNode) -> tuple[str, str]:
    """(data + bias + what skips the layer, what is kept): all is, but for training."""
    if node.given(4) and node.constant(4, "training_mode").any():
        raise UnsupportedError(f"{node.label}: training_mode=True is not supported")
    node.attr_int("seed", 0)
    total = node.emit("add", node.input(0), node.input(1))
    if node.given(2):
        total = node.emit("add", total, node.input(2))
    return total, node.new_constant(np.broadcast_to(np.bool_(True), node.shape()))
