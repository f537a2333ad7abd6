"""Operators of (batch, places..., channels): what ONNX has of (batch, channels, places...), between two transposes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autotune.errors import ModelError
from autotune.graph.frontend.contrib.products import fused_conv
from autotune.graph.frontend.convolution import conv
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.frontend.quantization import qlinear_conv


def channels_first(node: OnnxNode, convert: Callable[[OnnxNode], str], *positions: int) -> str:
    """What `convert` makes of the node, whose inputs at `positions` and whose result have their channels last."""
    inputs = list(node.inputs)
    for position in positions:
        rank = node.rank(position)
        if rank < 3:
            raise ModelError(f"{node.label}: data of shape {node.shape(position)} has no windows")
        inputs[position] = node.transposed(node.input(position), (0, rank - 1, *range(1, rank - 1)))
    result = convert(replace(node, inputs=tuple(inputs)))
    rank = len(node.builder.values[result].shape)
    return node.transposed(result, (0, *range(2, rank), 1))


@contributed("QLinearConv", inputs=9)
def qlinear_convolution(node: OnnxNode) -> str:
    """What ONNX Runtime makes of QLinearConv; its weights stay (filters, channels, window...)."""
    return channels_first(node, qlinear_conv, 0) if node.attr_flag("channels_last") else qlinear_conv(node)


@contributed("NhwcConv", inputs=3)
def nhwc_conv(node: OnnxNode) -> str:
    """Weights are (filters, window..., channels), too, as transformers' optimiser writes and CUDA kernels read them."""
    return channels_first(node, conv, 0, 1)


@contributed("NhwcFusedConv", inputs=4)
def nhwc_fused_conv(node: OnnxNode) -> str:
    """A convolution, plus a tensor, through an activation; its weights are (filters, channels, window...)."""
    return channels_first(node, fused_conv, *((0, 3) if node.given(3) else (0,)))
