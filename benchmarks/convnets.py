"""Convolutional networks of the zoo after ResNet: mobile and grouped ones, and one that borrows from transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnx

if TYPE_CHECKING:
    from benchmarks.zoo import Net


def efficientnet_b0(net: Net) -> onnx.ModelProto:
    """EfficientNet-B0 (Tan and Le 2019): inverted bottlenecks with squeeze-and-excitation, SiLU as Sigmoid and Mul."""
    return _efficientnet(net, lambda x: silu(net, x), gated=True)


def efficientnet_lite0(net: Net) -> onnx.ModelProto:
    """EfficientNet-Lite0 (2020), made to be quantised: the same with ReLU6 and without squeeze-and-excitation."""
    low, high = net.tensor(np.zeros((), np.float32)), net.tensor(np.full((), 6.0, np.float32))
    return _efficientnet(net, lambda x: net.node("Clip", x, low, high), gated=False)


def _efficientnet(net: Net, active: Callable[[str], str], *, gated: bool) -> onnx.ModelProto:
    x = active(net.norm(net.conv("input", 3, 32, 3, 2), 32, 1.0))
    ins = 32
    settings = (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )
    for expansion, outs, repeats, first_stride, kernel in settings:
        for repeat in range(repeats):
            stride, hidden = first_stride if repeat == 0 else 1, ins * expansion
            y = active(net.norm(net.conv(x, ins, hidden, 1), hidden, 1.0)) if expansion != 1 else x
            y = active(net.norm(net.conv(y, hidden, hidden, kernel, stride, groups=hidden), hidden, 1.0))
            if gated:
                gate = active(net.conv(net.node("GlobalAveragePool", y), hidden, ins // 4, 1, bias=True))
                gate = net.node("Sigmoid", net.conv(gate, ins // 4, hidden, 1, bias=True))
                y = net.node("Mul", y, gate)
            y = net.norm(net.conv(y, hidden, outs, 1), outs)
            x = net.node("Add", y, x) if stride == 1 and ins == outs else y
            ins = outs
    x = active(net.norm(net.conv(x, ins, 1280, 1), 1280, 1.0))
    return net.finish(net.classifier(x, 1280))


def mobilenetv3_large(net: Net) -> onnx.ModelProto:
    """MobileNetV3-Large (Howard et al. 2019): hard-swish and hard-sigmoid as their ONNX operators."""
    x = net.node("HardSwish", net.norm(net.conv("input", 3, 16, 3, 2), 16, 1.0))
    ins = 16
    settings = (
        (3, 16, 16, False, "Relu", 1),
        (3, 64, 24, False, "Relu", 2),
        (3, 72, 24, False, "Relu", 1),
        (5, 72, 40, True, "Relu", 2),
        (5, 120, 40, True, "Relu", 1),
        (5, 120, 40, True, "Relu", 1),
        (3, 240, 80, False, "HardSwish", 2),
        (3, 200, 80, False, "HardSwish", 1),
        (3, 184, 80, False, "HardSwish", 1),
        (3, 184, 80, False, "HardSwish", 1),
        (3, 480, 112, True, "HardSwish", 1),
        (3, 672, 112, True, "HardSwish", 1),
        (5, 672, 160, True, "HardSwish", 2),
        (5, 960, 160, True, "HardSwish", 1),
        (5, 960, 160, True, "HardSwish", 1),
    )
    for kernel, hidden, outs, gated, activation, stride in settings:
        y = net.node(activation, net.norm(net.conv(x, ins, hidden, 1), hidden, 1.0)) if hidden != ins else x
        y = net.node(activation, net.norm(net.conv(y, hidden, hidden, kernel, stride, groups=hidden), hidden, 1.0))
        if gated:
            few = hidden // 32 * 8
            gate = net.node("Relu", net.conv(net.node("GlobalAveragePool", y), hidden, few, 1, bias=True))
            gate = net.node("HardSigmoid", net.conv(gate, few, hidden, 1, bias=True), alpha=1 / 6)
            y = net.node("Mul", y, gate)
        y = net.norm(net.conv(y, hidden, outs, 1), outs)
        x = net.node("Add", y, x) if stride == 1 and ins == outs else y
        ins = outs
    x = net.node("HardSwish", net.norm(net.conv(x, ins, 960, 1), 960, 1.0))
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    return net.finish(net.dense(net.node("HardSwish", net.dense(x, 960, 1280)), 1280, 1000))


def resnext50(net: Net) -> onnx.ModelProto:
    """ResNeXt-50 32x4d (Xie et al. 2017): bottlenecks with 32 groups."""
    x = net.node("Relu", net.norm(net.conv("input", 3, 64, 7, stride=2), 64))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    ins = 64
    for width, repeats, first_stride in ((128, 3, 1), (256, 4, 2), (512, 6, 2), (1024, 3, 2)):
        for repeat in range(repeats):
            stride, outs = first_stride if repeat == 0 else 1, 2 * width
            y = net.node("Relu", net.norm(net.conv(x, ins, width, 1), width))
            y = net.node("Relu", net.norm(net.conv(y, width, width, 3, stride, groups=32), width))
            y = net.norm(net.conv(y, width, outs, 1), outs)
            if repeat == 0:
                x = net.norm(net.conv(x, ins, outs, 1, stride), outs)
            x = net.node("Relu", net.node("Add", y, x))
            ins = outs
    return net.finish(net.classifier(x, 2048))


def convnext_tiny(net: Net) -> onnx.ModelProto:
    """ConvNeXt-T (Liu et al. 2022): 7 x 7 depthwise, then channels last: layer norm, two dense layers, scale."""
    from benchmarks.transformers import gelu, layer_norm, linear

    def normed_last(x: str, width: int) -> str:
        y = layer_norm(net, net.node("Transpose", x, perm=[0, 2, 3, 1]), width)
        return net.node("Transpose", y, perm=[0, 3, 1, 2])

    x, ins = normed_last(net.conv("input", 3, 96, 4, stride=4, bias=True, padding=0), 96), 96
    for width, repeats in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if width != ins:
            x = net.conv(normed_last(x, ins), ins, width, 2, stride=2, bias=True, padding=0)
        for _ in range(repeats):
            y = net.node("Transpose", net.conv(x, width, width, 7, groups=width, bias=True), perm=[0, 2, 3, 1])
            y = gelu(net, linear(net, layer_norm(net, y, width), width, 4 * width))
            y = net.node("Mul", net.near(0.3, 0.1, (width,)), linear(net, y, 4 * width, width))
            x = net.node("Add", x, net.node("Transpose", y, perm=[0, 3, 1, 2]))
        ins = width
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    return net.finish(net.dense(layer_norm(net, x, 768), 768, 1000))


def yolov5s(net: Net) -> onnx.ModelProto:
    """The backbone, neck and heads of YOLOv5-s at 320 x 320, its three maps flattened and joined."""

    def conv(x: str, ins: int, outs: int, kernel: int = 1, stride: int = 1) -> str:
        return silu(net, net.norm(net.conv(x, ins, outs, kernel, stride), outs, 1.0))

    def csp(x: str, ins: int, outs: int, repeats: int, shortcut: bool = True) -> str:
        half = outs // 2
        y, other = conv(x, ins, half), conv(x, ins, half)
        for _ in range(repeats):
            z = conv(conv(y, half, half), half, half, 3)
            y = net.node("Add", y, z) if shortcut else z
        return conv(net.node("Concat", y, other, axis=1), outs, outs)

    def larger(x: str) -> str:
        scales = net.tensor(np.array([1, 1, 2, 2], np.float32))
        return net.node("Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric",
                        nearest_mode="floor")  # fmt: skip

    x = silu(net, net.norm(net.conv("input", 3, 32, 6, 2, padding=2), 32, 1.0))
    x = csp(conv(x, 32, 64, 3, 2), 64, 64, 1)
    p3 = csp(conv(x, 64, 128, 3, 2), 128, 128, 2)
    p4 = csp(conv(p3, 128, 256, 3, 2), 256, 256, 3)
    x = csp(conv(p4, 256, 512, 3, 2), 512, 512, 1)
    pooled = [conv(x, 512, 256)]
    for _ in range(3):
        pooled.append(net.node("MaxPool", pooled[-1], kernel_shape=[5, 5], pads=[2] * 4))
    top = conv(conv(net.node("Concat", *pooled, axis=1), 1024, 512), 512, 256)
    middle = csp(net.node("Concat", larger(top), p4, axis=1), 512, 256, 1, shortcut=False)
    middle = conv(middle, 256, 128)
    low = csp(net.node("Concat", larger(middle), p3, axis=1), 256, 128, 1, shortcut=False)
    mid = csp(net.node("Concat", conv(low, 128, 128, 3, 2), middle, axis=1), 256, 256, 1, shortcut=False)
    high = csp(net.node("Concat", conv(mid, 256, 256, 3, 2), top, axis=1), 512, 512, 1, shortcut=False)
    maps = []
    for x, channels, side in ((low, 128, 40), (mid, 256, 20), (high, 512, 10)):
        y = net.node("Reshape", net.conv(x, channels, 255, 1, bias=True), net.shape(1, 3, 85, side, side))
        y = net.node("Sigmoid", net.node("Transpose", y, perm=[0, 1, 3, 4, 2]))
        maps.append(net.node("Reshape", y, net.shape(1, 3 * side * side, 85)))
    return net.finish(net.node("Concat", *maps, axis=1), (1, 3, 320, 320), (1, 6300, 85))


def silu(net: Net, x: str) -> str:
    """x * sigmoid(x), as exporters write it."""
    return net.node("Mul", x, net.node("Sigmoid", x))
