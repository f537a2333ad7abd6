"""Conv, ConvTranspose and CausalConvWithState, with the bias as an `add` of shape (1, C, 1, ...)."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.windows import Window, read_window, transposed_window
from autotune.ops.conv import CONVOLUTIONS
from autotune.ops.workload import AttrValue


@converts("Conv")
def conv(node: OnnxNode) -> str:
    window = convolution_window(node, 1)
    result = convolve(node, node.input(0), node.input(1), window)
    return biased(node, result, 2)


def convolution_window(node: OnnxNode, weight: int) -> Window:
    """The window of a convolution whose weight is the input at position `weight`."""
    return read_window(node, kernel_of(node, weight))


def kernel_of(node: OnnxNode, weight: int) -> tuple[int, ...]:
    """The spatial shape of the weight, which `kernel_shape` must not contradict."""
    rank, known = node.rank() - 2, CONVOLUTIONS.values()
    if rank not in known:
        listed = f"{min(known)} to {max(known)} are supported"
        raise UnsupportedError(f"{node.label}: data of shape {node.shape()} has {rank} spatial axes; {listed}")
    shape = node.shape(weight)
    if len(shape) != node.rank():
        raise ModelError(f"{node.label}: weight of shape {shape} does not fit data of shape {node.shape()}")
    declared = node.attr_ints("kernel_shape", shape[2:])
    if declared != shape[2:]:
        raise ModelError(f"{node.label}: kernel_shape {declared} contradicts the weight of shape {shape}")
    return shape[2:]


def convolve(node: OnnxNode, x: str, weight: str, window: Window) -> str:
    """The convolution without bias."""
    return node.emit(f"conv{len(window.kernel)}d", x, weight, **convolution_attributes(node, window))


def convolution_attributes(node: OnnxNode, window: Window) -> dict[str, AttrValue]:
    return {
        "stride": window.stride,
        "pad": window.pad,
        "dilation": window.dilation,
        "groups": node.attr_int("group", 1),
    }


def biased(node: OnnxNode, result: str, position: int) -> str:
    """`result` plus the bias at an input position, if there is one."""
    if not node.given(position):
        return result
    shape = node.builder.values[result].shape
    if node.shape(position) != (shape[1],):
        raise ModelError(f"{node.label}: bias of shape {node.shape(position)}, {shape[1]} outputs")
    bias = node.reshaped(node.input(position), (1, shape[1], *(1,) * (len(shape) - 2)))
    return node.emit("add", result, bias)


@converts("CausalConvWithState")
def causal_conv_with_state(node: OnnxNode) -> tuple[str, str]:
    return causal_convolution(node, 1)


def causal_convolution(node: OnnxNode, dilation: int) -> tuple[str, str]:
    """A depthwise convolution over the past inputs and the new ones; the last inputs are the next past."""
    if node.rank() != 3 or node.rank(1) != 3:
        raise ModelError(f"{node.label}: data {node.shape()} and weight {node.shape(1)} must have three dimensions")
    (batch, channels, _), taps = node.shape(), node.shape(1)[2]
    past = (taps - 1) * dilation
    if node.shape(1) != (channels, 1, taps):
        raise ModelError(f"{node.label}: weight of shape {node.shape(1)}, ({channels}, 1, k) is needed")
    if node.given(3) and node.shape(3) != (batch, channels, past):
        raise ModelError(f"{node.label}: past state of shape {node.shape(3)}, {(batch, channels, past)} is needed")
    x = node.input(0)
    if past:
        state = node.input(3) if node.given(3) else node.constant_like(0.0, x, (batch, channels, past))
        x = node.emit("concat", state, x, axis=2)
    length = node.builder.values[x].shape[2]
    present = node.emit("slice", x, begin=(0, 0, length - past), size=(batch, channels, past), step=(1, 1, 1))
    result = node.emit(
        "conv1d", x, node.input(1), stride=(1,), pad=(0, 0), dilation=(dilation,), groups=channels,
    )  # fmt: skip
    result = biased(node, result, 2)
    activation = node.attr_string("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise ModelError(f"{node.label}: unknown activation '{activation}'")
    if activation != "none":
        result = node.emit("mul", result, node.emit("sigmoid", result))
    return result, present


@converts("ConvTranspose")
def conv_transpose(node: OnnxNode) -> str:
    """A transposed convolution; without a stride it is a convolution with the window turned round."""
    window, extra = transposed_window(node, kernel_of(node, 1))
    groups = node.attr_int("group", 1)
    if groups < 1:
        raise ModelError(f"{node.label}: group={groups} must be positive")
    inverse = _turned(node, window, extra)
    if inverse is not None:
        result = convolve(node, node.input(0), *inverse)
    else:
        result = node.emit(
            f"conv_transpose{len(window.kernel)}d",
            node.input(0),
            node.input(1),
            stride=window.stride,
            pad=window.pad,
            dilation=window.dilation,
            output_padding=extra,
            groups=groups,
        )
    return biased(node, result, 2)


def _turned(node: OnnxNode, window: Window, extra: tuple[int, ...]) -> tuple[str, Window] | None:
    """(weight, window) of the convolution that is a transposed one of stride 1; None where there is none."""
    rank, groups = len(window.kernel), node.attr_int("group", 1)
    reach = [(k - 1) * d for k, d in zip(window.kernel, window.dilation, strict=True)]
    pad = [r - p for r, p in zip(reach * 2, window.pad, strict=True)]
    pad = [p + e for p, e in zip(pad, (*(0,) * rank, *extra), strict=True)]
    if not node.is_constant(1) or max(window.stride) > 1 or min(pad) < 0 or node.shape(1)[0] % groups:
        return None
    array = node.constant(1, "weight")
    c, k, *kernel = array.shape
    turned = np.flip(array, tuple(range(2, array.ndim))).reshape(groups, c // groups, k, *kernel)
    weight = np.ascontiguousarray(turned.swapaxes(1, 2).reshape(groups * k, c // groups, *kernel))
    return node.new_constant(weight), Window(window.kernel, window.stride, window.dilation, tuple(pad))
