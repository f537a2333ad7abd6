"""Language models of the zoo that read a prompt: causal attention written in primitive nodes, as exporters do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from benchmarks.transformers import layer_norm, linear

if TYPE_CHECKING:
    from benchmarks.zoo import Net

WIDTH, HEADS, LAYERS, TOKENS = 768, 12, 12, 64
HEAD = WIDTH // HEADS


def gpt2(net: Net) -> onnx.ModelProto:
    """GPT-2 small on 64 embedded tokens: one projection split in three, GELU by tanh, masked scores by Where."""
    x = "input"
    allowed = net.tensor(np.tril(np.ones((1, 1, TOKENS, TOKENS), bool)))
    for _ in range(LAYERS):
        qkv = linear(net, layer_norm(net, x), WIDTH, 3 * WIDTH)
        q, k, v = (_part(net, qkv, n * WIDTH, (n + 1) * WIDTH, 2) for n in range(3))
        q, k, v = (_by_head(net, t, HEADS) for t in (q, k, v))
        scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = net.node("Where", allowed, net.node("Div", scores, net.scalar(HEAD**0.5)), net.scalar(-1e4))
        mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), v)
        x = net.node("Add", x, linear(net, _joined(net, mixed), WIDTH, WIDTH))
        y = linear(net, layer_norm(net, x), WIDTH, 4 * WIDTH)
        cubed = net.node("Mul", net.node("Pow", y, net.scalar(3.0)), net.scalar(0.044715))
        inner = net.node("Mul", net.node("Add", y, cubed), net.scalar(0.7978845608))
        gate = net.node("Add", net.node("Tanh", inner), net.scalar(1.0))
        y = net.node("Mul", net.node("Mul", y, net.scalar(0.5)), gate)
        x = net.node("Add", x, linear(net, y, 4 * WIDTH, WIDTH))
    return net.finish(layer_norm(net, x), (1, TOKENS, WIDTH), (1, TOKENS, WIDTH))


def llama(net: Net) -> onnx.ModelProto:
    """A LLaMA of GPT-2's size: RMS norm, rotary embedding, four key heads for twelve, SwiGLU."""
    x, few, inner = "input", HEADS // 3, 2048
    angles = np.outer(np.arange(TOKENS), 1e4 ** -(np.arange(0, HEAD, 2) / HEAD))
    angles = np.concatenate([angles, angles], axis=-1)[None, None]
    cos, sin = (net.tensor(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
    mask = net.tensor(np.triu(np.full((1, 1, TOKENS, TOKENS), -1e9, np.float32), 1))

    def rms_norm(x: str) -> str:
        mean = net.node("ReduceMean", net.node("Pow", x, net.scalar(2.0)), axes=[-1])
        root = net.node("Sqrt", net.node("Add", mean, net.scalar(1e-6)))
        scaled = net.node("Mul", x, net.node("Div", net.scalar(1.0), root))
        return net.node("Mul", net.near(1.0, 0.25, (WIDTH,)), scaled)

    def rotated(x: str) -> str:
        first, second = _part(net, x, 0, HEAD // 2, 3), _part(net, x, HEAD // 2, HEAD, 3)
        turned = net.node("Concat", net.node("Neg", second), first, axis=-1)
        return net.node("Add", net.node("Mul", x, cos), net.node("Mul", turned, sin))

    def repeated(x: str) -> str:
        x = net.node("Unsqueeze", x, net.shape(2))
        x = net.node("Expand", x, net.shape(1, few, HEADS // few, TOKENS, HEAD))
        return net.node("Reshape", x, net.shape(1, HEADS, TOKENS, HEAD))

    def product(x: str, ins: int, outs: int) -> str:
        return net.node("MatMul", x, net.matrix(ins, outs))

    for _ in range(LAYERS):
        y = rms_norm(x)
        q = rotated(_by_head(net, product(y, WIDTH, WIDTH), HEADS))
        k = repeated(rotated(_by_head(net, product(y, WIDTH, few * HEAD), few)))
        v = repeated(_by_head(net, product(y, WIDTH, few * HEAD), few))
        scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = net.node("Add", net.node("Div", scores, net.scalar(HEAD**0.5)), mask)
        mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), v)
        x = net.node("Add", x, product(_joined(net, mixed), WIDTH, WIDTH))
        y = rms_norm(x)
        gate = product(y, WIDTH, inner)
        gate = net.node("Mul", gate, net.node("Sigmoid", gate))
        x = net.node("Add", x, product(net.node("Mul", gate, product(y, WIDTH, inner)), inner, WIDTH))
    return net.finish(rms_norm(x), (1, TOKENS, WIDTH), (1, TOKENS, WIDTH))


def _part(net: Net, x: str, start: int, end: int, axis: int) -> str:
    return net.node("Slice", x, net.shape(start), net.shape(end), net.shape(axis))


def _by_head(net: Net, x: str, heads: int) -> str:
    """(1, tokens, heads * head) as (1, heads, tokens, head)."""
    return net.node("Transpose", net.node("Reshape", x, net.shape(1, TOKENS, heads, HEAD)), perm=[0, 2, 1, 3])


def _joined(net: Net, x: str) -> str:
    return net.node("Reshape", net.node("Transpose", x, perm=[0, 2, 1, 3]), net.shape(1, TOKENS, WIDTH))
