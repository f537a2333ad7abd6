"""The segmentation network of the zoo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

if TYPE_CHECKING:
    from benchmarks.zoo import Net

IMAGE, WIDTH, DEPTH, CLASSES = 256, 32, 4, 21


def unet(net: Net) -> onnx.ModelProto:
    """U-Net of four levels: two 3x3 convolutions each, skips by concatenation, 24.2 GFLOP.

    The two inner levels grow by transposed convolutions, the two outer ones by linear resizing and a 1x1 convolution.
    """

    def twice(x: str, ins: int, outs: int) -> str:
        x = net.node("Relu", net.conv(x, ins, outs, 3, bias=True))
        return net.node("Relu", net.conv(x, outs, outs, 3, bias=True))

    x, ins, skips = "input", 3, []
    for level in range(DEPTH):
        outs = WIDTH << level
        x = twice(x, ins, outs)
        skips.append(x)
        x, ins = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), outs
    x, ins = twice(x, ins, 2 * ins), 2 * ins
    for level in reversed(range(DEPTH)):
        outs = WIDTH << level
        x = transposed(net, x, ins, outs) if level >= DEPTH // 2 else resized(net, x, ins, outs)
        x, ins = twice(net.node("Concat", skips[level], x, axis=1), 2 * outs, outs), outs
    result = net.conv(x, ins, CLASSES, 1, bias=True)
    return net.finish(result, (1, 3, IMAGE, IMAGE), (1, CLASSES, IMAGE, IMAGE))


def transposed(net: Net, x: str, ins: int, outs: int) -> str:
    """Every pixel becomes 2x2."""
    bound = (6 / ins) ** 0.5  # of the uniform distribution with He's variance
    weight, bias = net.near(0.0, bound, (ins, outs, 2, 2)), net.near(0.0, 0.2, (outs,))
    return net.node("ConvTranspose", x, weight, bias, kernel_shape=[2, 2], strides=[2, 2])


def resized(net: Net, x: str, ins: int, outs: int) -> str:
    scales = net.tensor(np.asarray([1, 1, 2, 2], np.float32))
    x = net.node("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    return net.conv(x, ins, outs, 1, bias=True)
