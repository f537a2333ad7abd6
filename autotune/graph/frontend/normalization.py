"""Normalisations: by given statistics as scale and shift, by those of the data, and what does nothing at inference."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.source import dtype_of
from autotune.graph.ir import Array
from autotune.tensor import DType


@converts("BatchNormalization")
def batch_normalization(node: OnnxNode) -> str | tuple[str, ...]:
    """scale * (x - mean) / sqrt(var + epsilon) + bias, its two constants computed in float64.

    Statistics are per channel; before opset 9, with spatial=0, they are per element of a sample. In training mode
    they are those of the data.
    """
    if node.rank() < 2:
        raise ModelError(f"{node.label}: data of shape {node.shape()} has no channel axis")
    spatial = node.attr_flag("spatial", default=True)
    wanted = node.shape()[1:2] if spatial else node.shape()[1:]
    for position in range(1, 5):
        if node.shape(position) != wanted:
            raise ModelError(f"{node.label}: input {position} has shape {node.shape(position)}, needs {wanted}")
    extents = (1, *wanted, *(1,) * (node.rank() - 1 - len(wanted)))
    epsilon = node.attr_float("epsilon", 1e-5)
    dtype = DType(node.value().dtype)
    if node.attr_flag("training_mode"):
        return _by_statistics_of_the_data(node, extents, epsilon)
    if all(node.is_constant(position) for position in range(1, 5)):
        arrays = _scale_and_shift(node, epsilon)
        scale, shift = (node.new_constant(array.reshape(extents)) for array in arrays)
    else:
        wide = widest(dtype, *(DType(node.value(position).dtype) for position in range(1, 5)))
        gamma, beta, mean, variance = (node.converted(node.input(position), wide) for position in range(1, 5))
        variance = node.emit("add", variance, node.scalar(epsilon, variance))
        ratio = node.emit("div", gamma, node.emit("sqrt", variance))
        offset = node.emit("sub", beta, node.emit("mul", mean, ratio))
        scale, shift = node.reshaped(ratio, extents), node.reshaped(offset, extents)
    wide = DType(node.builder.values[scale].dtype)
    result = node.emit("add", node.emit("mul", node.converted(node.input(0), wide), scale), shift)
    return node.converted(result, dtype)


def _by_statistics_of_the_data(node: OnnxNode, extents: tuple[int, ...], epsilon: float) -> tuple[str, ...]:
    """(result, running mean, running variance), the latter two of what is given and what the data has."""
    dtype, running = DType(node.value().dtype), DType(node.value(3).dtype)
    widths = (DType(node.value(position).dtype) for position in range(1, 5))
    wide = widest(DType.f32, dtype, *widths)  # centring loses what 16 bits have
    x = node.converted(node.input(0), wide)
    gamma, beta = (node.reshaped(node.converted(node.input(n), wide), extents) for n in (1, 2))
    axes = (0, *range(2, node.rank()))
    mean = node.emit("reduce_mean", x, axes=axes, keepdims=True)
    centred = node.emit("sub", x, mean)
    variance = node.emit("reduce_mean", node.emit("mul", centred, centred), axes=axes, keepdims=True)
    deviation = node.emit("sqrt", node.emit("add", variance, node.scalar(epsilon, variance)))
    result = node.emit("add", node.emit("mul", centred, node.emit("div", gamma, deviation)), beta)
    momentum = node.attr_float("momentum", 0.9)
    kept = [node.converted(result, dtype)]
    for position, found in ((3, mean), (4, variance)):
        given = node.converted(node.input(position), wide)
        old = node.emit("mul", given, node.scalar(momentum, given))
        new = node.emit("mul", node.reshaped(found, node.shape(position)), node.scalar(1 - momentum, given))
        kept.append(node.converted(node.emit("add", old, new), running))
    return tuple(kept)


def widest(*dtypes: DType) -> DType:
    """The floating-point dtype with the most bits; of 16-bit ones that differ, f32."""
    most = max(dtypes, key=lambda d: d.bits)
    return DType.f32 if most.bits == 16 and len(set(dtypes)) > 1 else most


def _scale_and_shift(node: OnnxNode, epsilon: float) -> tuple[Array, Array]:
    arrays = [node.constant(position, "statistics") for position in range(1, 5)]
    wide = widest(DType(node.value().dtype), *(DType.of(array.dtype) for array in arrays)).numpy
    with np.errstate(all="ignore"):  # infinities and NaNs of the model are the model's
        gamma, beta, mean, variance = (array.astype(np.float64) for array in arrays)
        factor = gamma / np.sqrt(variance + epsilon)
        return factor.astype(wide), (beta - mean * factor).astype(wide)


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
def layer_normalization(node: OnnxNode) -> tuple[str, ...]:
    """Mean and variance over the trailing axes, then scale and bias; the mean and 1 / deviation where wanted."""
    own, stash = DType(node.value().dtype), _stash(node)
    wide = _at_least(own, stash)
    x, scale = (node.converted(node.input(position), wide) for position in (0, 1))
    bias = node.converted(node.input(2), wide) if node.given(2) else node.scalar(0.0, x)
    axis, epsilon = node.axis(node.attr_int("axis", -1), node.rank()), node.attr_float("epsilon", 1e-5)
    results = [""] * 3
    for result in range(3):
        if result == 0 or node.wanted(result):
            value = node.emit("layer_norm", x, scale, bias, axis=axis, epsilon=epsilon, result=result)
            results[result] = node.converted(value, stash if result else own)
    return tuple(results)


@converts("RMSNormalization")
def rms_normalization(node: OnnxNode) -> str:
    """x over the root of its mean square, then the scale, whose dtype the result has."""
    wide = _at_least(DType(node.value().dtype), _stash(node))
    wide = widest(wide, DType(node.value(1).dtype))
    x, scale = (node.converted(node.input(position), wide) for position in (0, 1))
    axis, epsilon = node.axis(node.attr_int("axis", -1), node.rank()), node.attr_float("epsilon", 1e-5)
    result = node.emit("rms_norm", x, scale, axis=axis, epsilon=epsilon)
    return node.converted(result, DType(node.value(1).dtype))


def _stash(node: OnnxNode) -> DType:
    """The dtype in which the statistics are to be kept."""
    stash = dtype_of(node.attr_int("stash_type", 1), node.label)
    if not stash.is_float:
        raise ModelError(f"{node.label}: stash_type {stash} is no floating-point type")
    return stash


def _at_least(own: DType, stash: DType) -> DType:
    """The dtype to normalise in: statistics of 16-bit floats are f32 in any case."""
    return stash if stash.bits > max(own.bits, 32) else own


@converts("InstanceNormalization")
def instance_normalization(node: OnnxNode) -> str:
    """A layer normalisation over the spatial axes, with one scale and bias per channel."""
    if node.rank() < 3:
        raise ModelError(f"{node.label}: data of shape {node.shape()} has no spatial axis")
    per_channel = (1, node.shape()[1], *(1,) * (node.rank() - 2))
    scale, bias = (node.reshaped(node.input(position), per_channel) for position in (1, 2))
    epsilon = node.attr_float("epsilon", 1e-5)
    return node.emit("layer_norm", node.input(0), scale, bias, axis=2, epsilon=epsilon, result=0)


@converts("GroupNormalization")
def group_normalization(node: OnnxNode) -> str:
    """A layer normalisation over the channels of a group and the spatial axes; opset 18 scales groups, not channels."""
    if node.rank() < 2:
        raise ModelError(f"{node.label}: data of shape {node.shape()} has no channel axis")
    (batch, channels, *extents), groups = node.shape(), node.attr_int("num_groups", 0)
    if groups < 1 or channels % groups:
        raise ModelError(f"{node.label}: num_groups={groups} does not divide {channels} channels")
    own = DType(node.value().dtype)
    wide = _at_least(own, _stash(node))
    per_group = channels // groups
    weights = (1, groups, per_group if node.opset >= 21 else 1, *(1,) * len(extents))
    x = node.converted(node.reshaped(node.input(0), (batch, groups, per_group, *extents)), wide)
    scale, bias = (node.converted(node.reshaped(node.input(n), weights), wide) for n in (1, 2))
    epsilon = node.attr_float("epsilon", 1e-5)
    result = node.emit("layer_norm", x, scale, bias, axis=2, epsilon=epsilon, result=0)
    return node.reshaped(node.converted(result, own), node.shape())


@converts("MeanVarianceNormalization")
def mean_variance_normalization(node: OnnxNode) -> str:
    given = node.attr_ints("axes", (0, 2, 3)) or ()
    axes = tuple(sorted(node.axis(axis, node.rank()) for axis in given))
    return node.emit("mean_variance_norm", node.input(0), axes=axes, epsilon=1e-9)


@converts("LpNormalization")
def lp_normalization(node: OnnxNode) -> str:
    axis, p = node.axis(node.attr_int("axis", -1), node.rank()), node.attr_int("p", 2)
    return node.emit("lp_norm", node.input(0), axis=axis, p=p)


@converts("Identity")
def identity(node: OnnxNode) -> str:
    return node.input(0)


@converts("Dropout")
def dropout(node: OnnxNode) -> tuple[str, str]:
    """Identity at inference; the mask (all true) is there if somebody reads it."""
    if node.given(2) and bool(node.constant(2, "training_mode")):
        raise UnsupportedError(f"{node.label}: training_mode=1; export the model for inference")
    if not node.wanted(1):
        return node.input(0), ""
    if node.opset >= 10:
        return node.input(0), node.new_constant(np.broadcast_to(np.True_, node.shape()))
    return node.input(0), node.constant_like(1, node.input(0), node.shape())
