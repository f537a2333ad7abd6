"""Deep convolutional networks of the zoo: residual ones, and what is built on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    from benchmarks.zoo import Net

IMAGE, CLASSES = 224, 21


def resnet101(net: Net) -> onnx.ModelProto:
    """ResNet-101 (He et al. 2015) as torchvision exports it."""
    return net.finish(net.classifier(_residual(net, (3, 4, 23, 3)), 2048))


def resnet152(net: Net) -> onnx.ModelProto:
    """ResNet-152."""
    return net.finish(net.classifier(_residual(net, (3, 8, 36, 3)), 2048))


def wide_resnet50(net: Net) -> onnx.ModelProto:
    """Wide ResNet-50-2 (Zagoruyko and Komodakis 2016): bottlenecks of twice the width."""
    return net.finish(net.classifier(_residual(net, (3, 4, 6, 3), wider=2), 2048))


def fcn_resnet50(net: Net) -> onnx.ModelProto:
    """FCN (Long et al. 2014) on ResNet-50, dilated so that the last two groups keep 28 x 28; linear resizing."""
    x = _residual(net, (3, 4, 6, 3), strides=(1, 2, 1, 1), dilations=(1, 1, 2, 4))
    x = net.node("Relu", net.norm(net.conv(x, 2048, 512, 3), 512, 1.0))
    x = net.conv(x, 512, CLASSES, 1, bias=True)
    sizes = net.shape(1, CLASSES, IMAGE, IMAGE)
    result = net.node("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
    return net.finish(result, gives=(1, CLASSES, IMAGE, IMAGE))


def darknet53(net: Net) -> onnx.ModelProto:
    """Darknet-53 (Redmon and Farhadi 2018), the backbone of YOLOv3: 1x1 and 3x3 in turn, leaky rectifiers."""

    def conv(x: str, ins: int, outs: int, kernel: int, stride: int = 1, scale: float = 1.0) -> str:
        return net.node("LeakyRelu", net.norm(net.conv(x, ins, outs, kernel, stride), outs, scale), alpha=0.1)

    x = conv("input", 3, 32, 3)
    for outs, repeats in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        x = conv(x, outs // 2, outs, 3, 2)
        for _ in range(repeats):
            x = net.node("Add", x, conv(conv(x, outs, outs // 2, 1), outs // 2, outs, 3, scale=0.5))
    return net.finish(net.classifier(x, 1024))


def _residual(
    net: Net, repeats: tuple[int, ...], strides: tuple[int, ...] = (1, 2, 2, 2),
    dilations: tuple[int, ...] = (1, 1, 1, 1), wider: int = 1,
) -> str:  # fmt: skip
    """A residual network of bottlenecks, without its classifier: 2048 channels."""
    x = net.node("Relu", net.norm(net.conv("input", 3, 64, 7, stride=2), 64))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    ins = 64
    for group, count in enumerate(repeats):
        width, outs, dilation = (64 << group) * wider, 256 << group, dilations[group]
        for repeat in range(count):
            stride = strides[group] if repeat == 0 else 1
            y = net.node("Relu", net.norm(net.conv(x, ins, width, 1), width))
            y = net.node("Relu", net.norm(net.conv(y, width, width, 3, stride, dilation=dilation), width))
            y = net.norm(net.conv(y, width, outs, 1), outs, 0.5)
            if repeat == 0:
                x = net.norm(net.conv(x, ins, outs, 1, stride), outs)
            x = net.node("Relu", net.node("Add", y, x))
            ins = outs
    return x
