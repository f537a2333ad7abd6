"""Random operators: numbers drawn while converting, so that a model is a function: the same draws in every run.

With a seed they are those of onnx.reference for it; without one the seed follows from the node's name.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.source import dtype_of
from autotune.tensor import DType
from autotune.tensor.extents import check_shape

MAX_DRAWN = 2**26  # they are kept as constants


@converts("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def random(node: OnnxNode) -> str:
    """Numbers of a normal distribution, or of a uniform one from `low` to `high`."""
    like = node.op.endswith("Like")
    shape = node.shape() if like else check_shape(node.attr_ints("shape") or (), "the result")
    usual = DType(node.value().dtype) if like else DType.f32
    dtype = dtype_of(node.attr_int("dtype", 0), node.label) if node.has("dtype") else usual
    if not dtype.is_float:
        raise ModelError(f"{node.label}: draws {dtype} numbers; give it a floating-point dtype")
    state = _drawing(node, shape)
    if node.op.startswith("RandomNormal"):
        factor, offset = node.attr_float("scale", 1.0), node.attr_float("mean", 0.0)
        drawn = state.standard_normal(shape)
    else:
        offset = node.attr_float("low", 0.0)
        factor, drawn = node.attr_float("high", 1.0) - offset, state.random_sample(shape)
    return node.new_constant((np.asarray(drawn) * factor + offset).astype(dtype.numpy))


@converts("Bernoulli")
def bernoulli(node: OnnxNode) -> str:
    """1 with the probability that each element of the input is; the schema's function has it the other way round."""
    dtype = dtype_of(node.attr_int("dtype", 0), node.label) if node.has("dtype") else DType(node.value().dtype)
    points = node.new_constant(_drawing(node, node.shape()).random_sample(node.shape()))
    return node.converted(node.emit("less", points, node.converted(node.input(0), DType.f64)), dtype)


@converts("Multinomial")
def multinomial(node: OnnxNode) -> str:
    """Classes drawn by probabilities, which come as logarithms up to a constant: where a uniform number falls."""
    if node.rank() != 2 or 0 in node.shape():
        raise ModelError(f"{node.label}: needs rows of probabilities, got shape {node.shape()}")
    (rows, classes), count = node.shape(), node.attr_int("sample_size", 1)
    if count < 1:
        raise ModelError(f"{node.label}: sample_size={count} must be positive")
    x = node.converted(node.input(0), DType.f64)
    ends = node.emit("cumsum", node.emit("softmax", x, axis=1), axis=1, exclusive=False, reverse=False)
    points = node.new_constant(_drawing(node, (rows, count, 1)).random_sample((rows, count, 1)))
    before = node.emit("greater_or_equal", points, node.reshaped(ends, (rows, 1, classes)))
    whole = node.converted(before, dtype_of(node.attr_int("dtype", 6), node.label))  # 6 is int32
    place = node.emit("reduce_sum", whole, axes=(2,), keepdims=False)
    return node.emit("min", place, node.scalar(classes - 1, place))  # the sum of the probabilities may end before 1


def _drawing(node: OnnxNode, shape: Sequence[int]) -> np.random.RandomState:
    """The generator of a node, by its seed or its name."""
    if math.prod(shape) > MAX_DRAWN:
        raise UnsupportedError(f"{node.label}: {math.prod(shape)} random numbers, more than {MAX_DRAWN}")
    seed = node.attr_float("seed", math.nan)
    if math.isfinite(seed):
        return np.random.RandomState(int(seed) % 2**32)
    return np.random.RandomState(zlib.crc32((node.proto.name or node.hint).encode()))
