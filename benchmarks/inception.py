"""Inception-v3 and -v4 (Szegedy et al. 2015, 2016), whose layers follow one another without residual ways around."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    from benchmarks.zoo import Net

IMAGE = (1, 3, 299, 299)
Layer = tuple[int, "int | tuple[int, int]"]
"""Channels and window; a chain of them has padding that keeps the size."""


def inception_v3(net: Net) -> onnx.ModelProto:
    """Inception-v3 without its auxiliary classifier, as torchvision exports it."""
    x = _layer(net, _layer(net, "input", 3, 32, 3, 2, 0), 32, 32, 3, 1, 0)
    x = _smaller(net, _layer(net, x, 32, 64, 3))
    x = _smaller(net, _layer(net, _layer(net, x, 64, 80, 1), 80, 192, 3, 1, 0))
    ins = 192
    for pooled in (32, 64, 64):
        x, ins = _joined(net, x, ins, [(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)], pooled=pooled)
    x, ins = _reduced(net, x, ins, [(384, 3)], [(64, 1), (96, 3), (96, 3)])
    for width in (128, 160, 160, 192):
        twice: list[Layer] = [(width, 1), (width, (7, 1)), (width, (1, 7)), (width, (7, 1)), (192, (1, 7))]
        x, ins = _joined(net, x, ins, [(192, 1)], [(width, 1), (width, (1, 7)), (192, (7, 1))], twice, pooled=192)
    x, ins = _reduced(net, x, ins, [(192, 1), (320, 3)], [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)])
    for _ in range(2):
        y, z = _layer(net, x, ins, 384, 1), _chain(net, x, ins, [(448, 1), (384, 3)])
        split = [_layer(net, part, 384, 384, window) for part in (y, z) for window in ((1, 3), (3, 1))]
        pooled_x = _layer(net, _mean(net, x), ins, 192, 1)
        x = net.node("Concat", _layer(net, x, ins, 320, 1), *split, pooled_x, axis=1)
        ins = 2048
    return net.finish(net.classifier(x, ins), IMAGE)


def inception_v4(net: Net) -> onnx.ModelProto:
    """Inception-v4."""
    x = _layer(net, _layer(net, _layer(net, "input", 3, 32, 3, 2, 0), 32, 32, 3, 1, 0), 32, 64, 3)
    x = net.node("Concat", _smaller(net, x), _layer(net, x, 64, 96, 3, 2, 0), axis=1)
    wide = _chain(net, x, 160, [(64, 1), (64, (7, 1)), (64, (1, 7))])
    x = net.node("Concat", _layer(net, _layer(net, x, 160, 64, 1), 64, 96, 3, 1, 0),
                 _layer(net, wide, 64, 96, 3, 1, 0), axis=1)  # fmt: skip
    x = net.node("Concat", _layer(net, x, 192, 192, 3, 2, 0), _smaller(net, x), axis=1)
    ins = 384
    for _ in range(4):
        x, ins = _joined(net, x, ins, [(96, 1)], [(64, 1), (96, 3)], [(64, 1), (96, 3), (96, 3)], pooled=96)
    x, ins = _reduced(net, x, ins, [(384, 3)], [(192, 1), (224, 3), (256, 3)])
    for _ in range(7):
        twice: list[Layer] = [(192, 1), (192, (1, 7)), (224, (7, 1)), (224, (1, 7)), (256, (7, 1))]
        x, ins = _joined(net, x, ins, [(384, 1)], [(192, 1), (224, (1, 7)), (256, (7, 1))], twice, pooled=128)
    x, ins = _reduced(net, x, ins, [(192, 1), (192, 3)], [(256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3)])
    for _ in range(3):
        y, z = _layer(net, x, ins, 384, 1), _chain(net, x, ins, [(384, 1), (448, (3, 1)), (512, (1, 3))])
        split = [_layer(net, y, 384, 256, window) for window in ((1, 3), (3, 1))]
        split += [_layer(net, z, 512, 256, window) for window in ((1, 3), (3, 1))]
        pooled_x = _layer(net, _mean(net, x), ins, 256, 1)
        x, ins = net.node("Concat", _layer(net, x, ins, 256, 1), *split, pooled_x, axis=1), 1536
    return net.finish(net.classifier(x, ins), IMAGE)


def _layer(
    net: Net, x: str, ins: int, outs: int, kernel: int | tuple[int, int], stride: int = 1, padding: int | None = None
) -> str:
    return net.node("Relu", net.norm(net.conv(x, ins, outs, kernel, stride, padding=padding), outs, 1.0))


def _chain(net: Net, x: str, ins: int, layers: list[Layer]) -> str:
    for outs, window in layers:
        x, ins = _layer(net, x, ins, outs, window), outs
    return x


def _joined(net: Net, x: str, ins: int, *branches: list[Layer], pooled: int) -> tuple[str, int]:
    """Branches side by side, one of them an average; and how many channels they have together."""
    parts = [_chain(net, x, ins, branch) for branch in branches]
    parts.append(_layer(net, _mean(net, x), ins, pooled, 1))
    return net.node("Concat", *parts, axis=1), pooled + sum(branch[-1][0] for branch in branches)


def _reduced(net: Net, x: str, ins: int, *branches: list[Layer]) -> tuple[str, int]:
    """The same where the last layer of each branch halves the image, which is pooled beside them."""
    parts = []
    for branch in branches:
        *others, (outs, window) = branch
        before = others[-1][0] if others else ins
        parts.append(_layer(net, _chain(net, x, ins, others), before, outs, window, 2, 0))
    return net.node("Concat", *parts, _smaller(net, x), axis=1), ins + sum(branch[-1][0] for branch in branches)


def _smaller(net: Net, x: str) -> str:
    return net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])


def _mean(net: Net, x: str) -> str:
    return net.node("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
