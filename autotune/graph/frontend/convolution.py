"""Conv: conv2d with the bias as an `add` of shape (1, C, 1, 1)."""

from __future__ import annotations

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.windows import as_2d, from_2d, read_window, spatial_rank


@converts("Conv")
def conv(node: OnnxNode) -> str:
    rank = spatial_rank(node)
    weight = node.shape(1)
    if len(weight) != rank + 2:
        raise ModelError(f"{node.label}: weight of shape {weight} does not fit data of shape {node.shape()}")
    kernel = weight[2:]
    declared = node.attr_ints("kernel_shape", kernel)
    if declared != kernel:
        raise ModelError(f"{node.label}: kernel_shape {declared} contradicts the weight of shape {weight}")
    window = read_window(node, kernel).as_2d()
    result = node.emit(
        "conv2d",
        as_2d(node, node.input(0)),
        as_2d(node, node.input(1)),
        stride=window.stride,
        pad=window.pad,
        dilation=window.dilation,
        groups=node.attr_int("group", 1),
    )
    if node.given(2):
        if node.shape(2) != (weight[0],):
            raise ModelError(f"{node.label}: bias of shape {node.shape(2)}, {weight[0]} outputs")
        bias = node.reshaped(node.input(2), (1, weight[0], 1, 1))
        result = node.emit("add", result, bias)
    return from_2d(node, result, rank)
