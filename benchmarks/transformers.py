"""Transformers of the zoo, written in primitive nodes as exporters of PyTorch write them.

`bert_base` starts from embedded tokens, `vit_base` from an image; dropout is gone, all shapes are static.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    from benchmarks.zoo import Net

WIDTH, HEADS, INNER, LAYERS = 768, 12, 3072, 12
TOKENS, PATCHES, PATCH = 128, 196, 16


def bert_base(net: Net) -> onnx.ModelProto:
    """BERT-base on 128 embedded tokens: normalisation after each residual, scores divided by the root of the width."""
    x = layer_norm(net, "input")
    for _ in range(LAYERS):
        q, k, v = (_heads(net, linear(net, x, WIDTH, WIDTH), TOKENS) for _ in range(3))
        keys = net.node("Transpose", k, perm=[0, 2, 3, 1])
        scores = net.node("Div", net.node("MatMul", _by_head(net, q), keys), net.scalar(math.sqrt(WIDTH / HEADS)))
        mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), _by_head(net, v))
        y = linear(net, _joined(net, mixed, TOKENS), WIDTH, WIDTH)
        x = layer_norm(net, net.node("Add", y, x))
        y = linear(net, gelu(net, linear(net, x, WIDTH, INNER)), INNER, WIDTH)
        x = layer_norm(net, net.node("Add", y, x))
    return net.finish(x, (1, TOKENS, WIDTH), (1, TOKENS, WIDTH))


def vit_base(net: Net) -> onnx.ModelProto:
    """ViT-B/16 at 224: one projection for q, k and v; q and k each scaled by the fourth root of the width."""
    x = net.conv("input", 3, WIDTH, PATCH, stride=PATCH, bias=True, padding=0)
    x = net.node("Transpose", net.node("Reshape", x, net.shape(1, WIDTH, PATCHES)), perm=[0, 2, 1])
    x = net.node("Concat", net.near(0.0, 1.0, (1, 1, WIDTH)), x, axis=1)
    x = net.node("Add", x, net.near(0.0, 1.0, (1, PATCHES + 1, WIDTH)))
    length, root = PATCHES + 1, (WIDTH / HEADS) ** -0.25
    for _ in range(LAYERS):
        qkv = linear(net, layer_norm(net, x), WIDTH, 3 * WIDTH)
        qkv = net.node("Reshape", qkv, net.shape(1, length, 3, HEADS, WIDTH // HEADS))
        qkv = net.node("Transpose", qkv, perm=[2, 0, 3, 1, 4])
        q, k, v = (net.node("Gather", qkv, net.index(n), axis=0) for n in range(3))
        q = net.node("Mul", q, net.scalar(root))
        k = net.node("Mul", net.node("Transpose", k, perm=[0, 1, 3, 2]), net.scalar(root))
        mixed = net.node("MatMul", net.node("Softmax", net.node("MatMul", q, k), axis=-1), v)
        x = net.node("Add", x, linear(net, _joined(net, mixed, length), WIDTH, WIDTH))
        y = linear(net, gelu(net, linear(net, layer_norm(net, x), WIDTH, INNER)), INNER, WIDTH)
        x = net.node("Add", x, y)
    token = net.node("Gather", layer_norm(net, x), net.index(0), axis=1)
    return net.finish(net.dense(token, WIDTH, 1000))


def swin_tiny(net: Net) -> onnx.ModelProto:
    """Swin-T (Liu et al. 2021): attention in windows of 7 x 7, every other layer shifted, patches merged between."""
    x = net.conv("input", 3, 96, 4, stride=4, bias=True, padding=0)
    x = layer_norm(net, net.node("Transpose", x, perm=[0, 2, 3, 1]), 96)
    side, width = 56, 96
    for repeats, heads in ((2, 3), (2, 6), (6, 12), (2, 24)):
        for layer in range(repeats):
            x = _windowed(net, x, side, width, heads, shift=3 if layer % 2 and side > WINDOW else 0)
            y = linear(net, gelu(net, linear(net, layer_norm(net, x, width), width, 4 * width)), 4 * width, width)
            x = net.node("Add", x, y)
        if heads < 24:
            y = net.node("Reshape", x, net.shape(1, side // 2, 2, side // 2, 2, width))
            y = net.node("Reshape", net.node("Transpose", y, perm=[0, 1, 3, 4, 2, 5]),
                         net.shape(1, side // 2, side // 2, 4 * width))  # fmt: skip
            x = net.node("MatMul", layer_norm(net, y, 4 * width), net.matrix(4 * width, 2 * width))
            side, width = side // 2, 2 * width
    x = net.node("ReduceMean", layer_norm(net, x, width), axes=[1, 2], keepdims=0)
    return net.finish(net.dense(x, width, 1000))


WINDOW = 7


def _windowed(net: Net, x: str, side: int, width: int, heads: int, shift: int) -> str:
    """Attention of one layer of Swin, with its residual."""

    def rolled(x: str, by: int) -> str:
        for axis in (1, 2):
            ends = [net.shape(n) for n in (by % side, side)], [net.shape(n) for n in (0, by % side)]
            parts = [net.node("Slice", x, start, end, net.shape(axis)) for start, end in ends]
            x = net.node("Concat", *parts, axis=axis)
        return x

    count, tokens = side // WINDOW, WINDOW * WINDOW
    y = layer_norm(net, x, width)
    y = rolled(y, shift) if shift else y
    y = net.node("Reshape", y, net.shape(1, count, WINDOW, count, WINDOW, width))
    y = net.node("Reshape", net.node("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), net.shape(count**2, tokens, width))
    qkv = net.node("Reshape", linear(net, y, width, 3 * width), net.shape(count**2, tokens, 3, heads, width // heads))
    qkv = net.node("Transpose", qkv, perm=[2, 0, 3, 1, 4])
    q, k, v = (net.node("Gather", qkv, net.index(n), axis=0) for n in range(3))
    q = net.node("Mul", q, net.scalar((width // heads) ** -0.5))
    scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.node("Add", scores, net.near(0.0, 0.5, (1, heads, tokens, tokens)))
    if shift:
        scores = net.node("Reshape", scores, net.shape(1, count**2, heads, tokens, tokens))
        scores = net.node("Add", scores, net.near(0.0, 0.5, (1, count**2, 1, tokens, tokens)))
        scores = net.node("Reshape", scores, net.shape(count**2, heads, tokens, tokens))
    mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), v)
    mixed = net.node("Reshape", _by_head(net, mixed), net.shape(count**2, tokens, width))
    y = net.node("Reshape", linear(net, mixed, width, width), net.shape(1, count, count, WINDOW, WINDOW, width))
    y = net.node("Reshape", net.node("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), net.shape(1, side, side, width))
    return net.node("Add", x, rolled(y, -shift) if shift else y)


def linear(net: Net, x: str, ins: int, outs: int) -> str:
    """A product with a constant matrix, then the bias; of variance about 1, as trained layers have it."""
    product = net.node("MatMul", x, net.matrix(ins, outs))
    return net.node("Add", net.near(0.0, 0.2, (outs,)), product)


def layer_norm(net: Net, x: str, width: int = WIDTH) -> str:
    """Layer normalisation from means, as exporters before opset 17 write it."""
    centred = net.node("Sub", x, net.node("ReduceMean", x, axes=[-1]))
    variance = net.node("ReduceMean", net.node("Pow", centred, net.scalar(2.0)), axes=[-1])
    deviation = net.node("Sqrt", net.node("Add", variance, net.scalar(1e-12)))
    scaled = net.node("Mul", net.node("Div", centred, deviation), net.near(1.0, 0.25, (width,)))
    return net.node("Add", scaled, net.near(0.0, 0.2, (width,)))


def gelu(net: Net, x: str) -> str:
    """x (1 + erf(x / sqrt 2)) / 2."""
    erf = net.node("Erf", net.node("Div", x, net.scalar(math.sqrt(2.0))))
    return net.node("Mul", net.node("Mul", x, net.node("Add", erf, net.scalar(1.0))), net.scalar(0.5))


def _heads(net: Net, x: str, length: int) -> str:
    return net.node("Reshape", x, net.shape(1, length, HEADS, WIDTH // HEADS))


def _by_head(net: Net, x: str) -> str:
    return net.node("Transpose", x, perm=[0, 2, 1, 3])


def _joined(net: Net, x: str, length: int) -> str:
    return net.node("Reshape", _by_head(net, x), net.shape(1, length, WIDTH))
