"""Operators of images with their channels last, as ONNX Runtime's optimiser and diffusion models have them."""

from __future__ import annotations

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.contrib.channels_last import channels_first
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.frontend.windows import read_window
from autotune.tensor import DType


@contributed("NhwcMaxPool", inputs=1)
def nhwc_max_pool(node: OnnxNode) -> str:
    return channels_first(node, _max_pool, 0)


def _max_pool(node: OnnxNode) -> str:
    window = read_window(node, node.attr_ints("kernel_shape") or ())
    return node.emit("max_pool", node.input(0), kernel=window.kernel, stride=window.stride, pad=window.pad,
                     dilation=window.dilation, ceil_mode=node.attr_flag("ceil_mode"))  # fmt: skip


@contributed("GroupNorm", inputs=3)
def group_norm(node: OnnxNode) -> str:
    return _group_norm(node, node.input(0), (1, 2))


@contributed("SkipGroupNorm", inputs=5)
def skip_group_norm(node: OnnxNode) -> tuple[str, str]:
    """(result, sum) of input + skip + bias, whose skip may be one for all places."""
    shape, skip = node.shape(), node.shape(3)
    if node.rank() != 4 or skip not in (shape, (shape[0], 1, 1, shape[3]), (shape[0], shape[3])):
        raise ModelError(f"{node.label}: a skip of shape {skip} for data of shape {shape}")
    other = node.input(3) if len(skip) == 4 else node.reshaped(node.input(3), (shape[0], 1, 1, shape[3]))
    total = node.emit("add", node.input(0), other)
    if node.given(4):
        total = node.emit("add", total, node.input(4))
    return _group_norm(node, total, (1, 2)), total


def _group_norm(node: OnnxNode, x: str, weights: tuple[int, int]) -> str:
    """Normalised over the places and the channels of a group, in f32, through SiLU if the node says so."""
    if node.attr_int("channels_last", 1) != 1:
        raise UnsupportedError(f"{node.label}: channels_last=0 is not supported")
    shape, groups = node.builder.values[x].shape, node.attr_int("groups", 0)
    if len(shape) != 4 or groups < 1 or shape[3] % groups:
        raise ModelError(f"{node.label}: groups={groups} of data of shape {shape}")
    own, each = DType(node.builder.values[x].dtype), shape[3] // groups
    split = node.reshaped(node.converted(x, DType.f32), (*shape[:3], groups, each))
    first = node.transposed(split, (0, 3, 1, 2, 4))
    scale, bias = (
        node.reshaped(node.converted(node.input(n), DType.f32), (1, groups, 1, 1, each)) for n in weights
    )  # fmt: skip
    epsilon = node.attr_float("epsilon", 1e-5)
    found = node.emit("layer_norm", first, scale, bias, axis=2, epsilon=epsilon, result=0)
    found = node.reshaped(node.transposed(found, (0, 2, 3, 1, 4)), shape)
    if node.attr_flag("activation"):
        found = node.emit("swish", found, alpha=1.0)
    return node.converted(found, own)


@contributed("BiasAdd", inputs=3)
def bias_add(node: OnnxNode) -> str:
    """Data, a bias of its last dimension, and what skips the layer."""
    return node.emit("add", node.emit("add", node.input(0), node.input(1)), node.input(2))


@contributed("BiasSplitGelu", inputs=2)
def bias_split_gelu(node: OnnxNode) -> str:
    """Half of the features times the Gelu of the others."""
    total = node.emit("add", node.input(0), node.input(1))
    shape = node.builder.values[total].shape
    if not shape or shape[-1] % 2:
        raise ModelError(f"{node.label}: data of shape {shape} has no halves")
    lead, half = tuple(map(range, shape[:-1])), shape[-1] // 2
    left, right = (node.sliced(total, (*lead, part)) for part in (range(half), range(half, 2 * half)))
    return node.emit("mul", left, node.emit("gelu", right, approximate="none"))
