"""Patterns as exporters write them, which the graph passes recognise: ways in which random models grow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.property.random_graph import Model, step
from tests.property.random_graph_forms import Unfit

ALIKE = 0.05
"""Share of the largest element by which rows in f16 differ at least that are brought to a deviation of one."""


@step(1)
def layer_norm(m: Model) -> None:
    """As one operator, or as exporters write it."""
    x = m.pick()
    if x is None or m.values[x].ndim < 2 or m.shape(x)[-1] < 3:
        return
    n = m.shape(x)[-1]
    scale, shift = m.constant(m.array((n,), scale=0.2) + 1), m.constant(m.array((n,)))
    if m.rng.random() < 0.4 and m.has("LayerNormalization"):
        m.one("LayerNormalization", x, scale, shift, axis=-1)
        return
    mean = _mean(m, x)
    centred = m.one("Sub", x, mean)
    square = m.one("Pow", centred, m.number(2.0))
    deviation = m.one("Sqrt", m.one("Add", _mean(m, square), m.number(1e-5)))
    if m.dtype == np.float16 and m.values[deviation].min(initial=1.0) < ALIKE * np.abs(m.values[x]).max(initial=0.0):
        raise Unfit  # the reference rounds each step to f16: what it gives is its own rounding, 20 times as large
    m.one("Add", m.one("Mul", m.one("Div", centred, deviation), scale), shift)


def _mean(m: Model, x: str) -> str:
    return m.one("ReduceMean", x, m.ints(m.values[x].ndim - 1), keepdims=1)


@step(1)
def gelu(m: Model) -> None:
    """The exact and the tanh form as exporters write them, SiLU, and the operator."""
    x = m.pick()
    if x is None:
        return

    kind = m.rng.choice(("erf", "tanh", "silu", "op"))
    if kind == "erf":
        inner = m.one("Add", m.one("Erf", m.one("Div", x, m.number(math.sqrt(2.0)))), m.number(1.0))
        m.one("Mul", m.one("Mul", x, inner), m.number(0.5))
    elif kind == "tanh":
        cube = m.one("Pow", x, m.number(3.0))
        sum_ = m.one("Add", x, m.one("Mul", cube, m.number(0.044715)))
        inner = m.one("Add", m.one("Tanh", m.one("Mul", sum_, m.number(math.sqrt(2 / math.pi)))), m.number(1.0))
        m.one("Mul", m.one("Mul", x, m.number(0.5)), inner)
    elif kind == "silu":
        m.one("Mul", x, m.one("Sigmoid", x))
    elif m.has("Gelu"):
        m.one("Gelu", x, approximate=m.rng.choice(("none", "tanh")))


@step(1)
def attention(m: Model) -> None:
    """Heads split from one product, scores, scale, softmax, values, heads joined."""
    x = m.pick(3)
    if x is None or m.shape(x)[1] > 20:
        return
    _, length, width = m.shape(x)
    heads, size = m.rng.choice((1, 2, 3)), m.rng.choice((4, 8))

    def head(perm: list[int]) -> str:
        flat = m.one("Add", m.one("MatMul", x, m.weight(width, heads * size)), m.constant(m.array((heads * size,))))
        return m.one("Transpose", m.one("Reshape", flat, m.ints(0, 0, heads, size)), perm=perm)

    query, key, value = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
    scores = m.one("Div", m.one("MatMul", query, key), m.number(math.sqrt(size)))
    if m.rng.random() < 0.4:
        scores = m.one("Add", scores, m.constant(m.array((1, 1, length, length))))
    mixed = m.one("MatMul", m.one("Softmax", scores, axis=-1), value)
    m.one("Reshape", m.one("Transpose", mixed, perm=[0, 2, 1, 3]), m.ints(0, 0, heads * size))


def _conv(m: Model, x: str, outs: int, kernel: int, groups: int = 1, stride: int = 1) -> str:
    """A convolution that keeps the size of the image, with or without a bias."""
    if 0 in m.shape(x)[2:]:
        raise Unfit("no image")
    bias = [m.constant(m.array((outs,)))] if m.rng.random() < 0.5 else []
    weight = m.weight(outs, m.shape(x)[1] // groups, *(kernel for _ in m.shape(x)[2:]))
    pads = [(kernel - 1) // 2] * 2 * (m.values[x].ndim - 2)
    strides = [stride] * (m.values[x].ndim - 2)
    return m.one("Conv", x, weight, *bias, pads=pads, group=groups, strides=strides)


def _batch_norm(m: Model, x: str) -> str:
    shape = (m.shape(x)[1],)
    parts = [m.array(shape, scale=0.1) + 1, m.array(shape), m.array(shape), np.abs(m.array(shape)) + 0.5]
    return m.one("BatchNormalization", x, *(m.constant(part) for part in parts))


@step(1.5)
def residual_block(m: Model) -> None:
    x = m.need(4)
    c = m.shape(x)[1]
    y = m.one("Relu", _batch_norm(m, _conv(m, x, c, 3)))
    y = _batch_norm(m, _conv(m, y, c, m.rng.choice((1, 3))))
    short = _batch_norm(m, _conv(m, x, c, 1)) if m.rng.random() < 0.4 else x
    m.one("Relu", m.one("Add", *m.rng.sample((y, short), 2)))


@step(1)
def inverted_residual(m: Model) -> None:
    """Pointwise, depthwise, squeeze and excite, pointwise."""
    x = m.need(4)
    c = m.shape(x)[1]
    wide = c * m.rng.choice((1, 2))
    y = m.one("Clip", _batch_norm(m, _conv(m, x, wide, 1)), m.number(0.0), m.number(6.0))
    y = _batch_norm(m, _conv(m, y, wide, m.rng.choice((3, 5)), groups=wide))
    if m.rng.random() < 0.5:
        gate = m.one("Relu", _conv(m, m.one("GlobalAveragePool", y), 4, 1))
        y = m.one("Mul", y, m.one(m.rng.choice(("Sigmoid", "HardSigmoid")), _conv(m, gate, wide, 1)))
    m.one("Add", x, _conv(m, y, c, 1))


@step(1.5)
def inception(m: Model) -> None:
    """Parallel convolutions of one input, joined."""
    x = m.need(4)
    parts = [m.one("Relu", _conv(m, x, m.rng.choice((4, 8, 3)), 1)) for _ in range(m.rng.randint(2, 3))]
    parts[-1] = _conv(m, parts[-1], 4, 3)
    if m.rng.random() < 0.5:
        kind = m.rng.choice(("MaxPool", "AveragePool"))
        parts.append(m.one(kind, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]))
    y = m.one("Concat", *parts, axis=1)
    if m.rng.random() < 0.5:
        m.one("Relu", _conv(m, _batch_norm(m, y), 8, 1))


@step(1)
def norm_before_convolution(m: Model) -> None:
    x = m.need(4)
    y = _batch_norm(m, x)
    if m.rng.random() < 0.5:
        y = m.one("Relu", y)
    y = _conv(m, y, m.rng.choice((3, 16)), m.rng.choice((1, 3)), stride=m.rng.choice((1, 2)))
    if m.rng.random() < 0.4:  # scaled by hand
        y = m.one("Mul", y, m.constant(m.array((1, m.shape(y)[1], 1, 1))))
        m.one("Add", y, m.constant(m.array((m.shape(y)[1], 1, 1))))


@step(1)
def padded_window(m: Model) -> None:
    """Pad before a convolution or a pool."""
    x = m.need(4)
    mode, pads = m.rng.choice((("constant", (0, 1, 2)), ("constant", (0, 1)), ("reflect", (0, 1)), ("edge", (0, 2))))
    room = [n - 1 if mode == "reflect" else max(pads) for n in m.shape(x)[2:]] * 2  # what there is to reflect
    sides = [min(m.rng.choice(pads), most) for most in room]
    y = m.one("Pad", x, m.ints(0, 0, *sides[:2], 0, 0, *sides[2:]), mode=mode, keeps=True)
    if m.rng.random() < 0.6 or min(m.shape(y)[2:]) < 2:
        _conv(m, y, 8, m.rng.choice((1, 3)), stride=m.rng.choice((1, 2)))
    else:
        m.one(m.rng.choice(("MaxPool", "AveragePool")), y, kernel_shape=[2, 2], strides=[2, 2])


@step(1)
def up_sampling(m: Model) -> None:
    """A transposed convolution with normalisation, or a resized image and a convolution."""
    x = m.need(4)
    c, (h, w) = m.shape(x)[1], m.shape(x)[2:]
    if max(h, w) > 10:
        return
    if m.rng.random() < 0.3:
        scales = m.constant(np.array([1, 1, 2, 2], np.float32))
        y = m.one("Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", keeps=True)
        _conv(m, y, 8, 3)
        return
    groups = m.rng.choice([g for g in (1, 1, 1, 2, c) if g and c % g == 0])
    kernel, stride, dilation = m.rng.randint(1, 4), m.rng.choice((1, 2, 2, 3)), m.rng.choice((1, 1, 1, 2))
    pads = [m.rng.choice((0, 1)) for _ in range(4)] if (kernel - 1) * dilation >= 2 else [0] * 4
    extra = m.rng.randint(0, stride - 1) if stride > 1 else 0
    y = m.one(
        "ConvTranspose", x, m.weight(c, m.rng.choice((1, 4, 16)), kernel, kernel), group=groups, pads=pads,
        strides=[stride] * 2, dilations=[dilation] * 2, output_padding=[extra, 0],
    )  # fmt: skip
    if m.rng.random() < 0.6:
        y = _batch_norm(m, y)
    if m.rng.random() < 0.5:
        m.one("Relu", y)


@step(1)
def channel_shuffle(m: Model) -> None:
    x = m.need(4)
    n, c, h, w = m.shape(x)
    groups = next((g for g in (2, 4, 3) if c % g == 0 and c > g), 0)
    if groups:
        apart = m.one("Reshape", x, m.ints(n, groups, c // groups, h, w), keeps=True)
        mixed = m.one("Transpose", apart, perm=[0, 2, 1, 3, 4], keeps=True)
        m.one("Reshape", mixed, m.ints(n, c, h, w), keeps=True)


@step(1.5)
def halves(m: Model) -> None:
    """Channels split, worked on apart, and joined: views and writes in place."""
    x = m.need()
    rank = m.values[x].ndim
    if rank < 2 or m.shape(x)[1] < 2:
        return
    cut = m.rng.randint(1, m.shape(x)[1] - 1)
    if m.rng.random() < 0.6:
        a, b = m.add("Split", x, m.ints(cut, m.shape(x)[1] - cut), outputs=2, axis=1)
    else:
        ones, end = m.ints(1), m.ints(m.shape(x)[1])
        a = m.one("Slice", x, m.ints(0), m.ints(cut), ones)
        b = m.one("Slice", x, m.ints(cut), end, ones)
    if rank == 4 and m.rng.random() < 0.6:
        a = _conv(m, a, m.rng.choice((m.shape(a)[1], 8)), 3)
    else:
        a = m.one(m.rng.choice(("Relu", "Sigmoid", "Neg")), a)
    if m.rng.random() < 0.5:
        b = m.one("Tanh", b)
    y = m.one("Concat", *m.rng.sample((a, b), 2), axis=1)
    if m.rng.random() < 0.3:
        m.one("Mul", y, m.constant(m.array((1,) * rank)))


@step(1)
def packed_heads(m: Model) -> None:
    """Queries, keys and values out of one product, with a causal mask, as GPT-2 writes it."""
    x = m.need(3)
    batch, length, width = m.shape(x)
    if length > 20:
        return
    heads, size = m.rng.choice((1, 2)), m.rng.choice((4, 8))
    inner = heads * size
    flat = m.one("Add", m.one("MatMul", x, m.weight(width, 3 * inner)), m.constant(m.array((3 * inner,))))
    parts = m.add("Split", flat, m.ints(inner, inner, inner), outputs=3, axis=2)
    q, k, v = (
        m.one("Transpose", m.one("Reshape", part, m.ints(batch, length, heads, size)), perm=[0, 2, 1, 3])
        for part in parts
    )
    scores = m.one("Mul", m.one("MatMul", q, m.one("Transpose", k, perm=[0, 1, 3, 2])), m.number(size**-0.5))
    if m.rng.random() < 0.5:
        mask = m.constant(np.tril(np.ones((1, 1, length, length), np.bool_)))
        scores = m.one("Where", mask, scores, m.number(-1e4))
    mixed = m.one("Transpose", m.one("MatMul", m.one("Softmax", scores, axis=3), v), perm=[0, 2, 1, 3])
    y = m.one("MatMul", m.one("Reshape", mixed, m.ints(batch, length, inner)), m.weight(inner, width))
    m.one("Add", x, y)


@step(1)
def normalisation(m: Model) -> None:
    """RMS, instance, group and L2 normalisation, softmax in primitive nodes."""
    x = m.need()
    rank = m.values[x].ndim
    if rank < 2:
        return
    kind = m.rng.choice(("rms", "instance", "group", "l2", "softmax", "RMSNormalization"))
    c, last = m.shape(x)[1], m.shape(x)[-1]
    if kind == "rms":
        mean = _mean(m, m.one("Mul", x, x))
        root = m.one("Sqrt", m.one("Add", mean, m.number(1e-3)))
        m.one("Mul", m.one("Div", x, root), m.constant(m.array((last,))))
    elif kind == "instance" and rank > 2 and min(m.shape(x)[2:]) > 1:
        m.one("InstanceNormalization", x, m.constant(m.array((c,))), m.constant(m.array((c,))), epsilon=1e-3)
    elif kind == "group" and rank == 4 and c % 2 == 0:
        groups = 2
        parts = m.constant(m.array((c,))), m.constant(m.array((c,)))
        m.one("GroupNormalization", x, *parts, num_groups=groups, epsilon=1e-3)
    elif kind == "l2":
        m.one("LpNormalization", x, axis=rank - 1, p=2)  # onnx.reference adds signed values for p = 1
    elif kind == "softmax":
        largest = m.one("ReduceMax", x, m.ints(rank - 1), keepdims=1)
        e = m.one("Exp", m.one("Sub", x, largest))
        m.one("Div", e, m.one("ReduceSum", e, m.ints(rank - 1), keepdims=1))
    elif kind == "RMSNormalization":
        m.one(kind, x, m.constant(m.array((last,))), axis=-1, epsilon=1e-3)


@step(1)
def recurrent(m: Model) -> None:
    x = m.need(3)
    steps, _, width = m.shape(x)
    if steps > 12:
        return
    op, gates = m.rng.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    direction = m.rng.choice(("forward", "reverse", "bidirectional"))
    ways, hidden = 2 if direction == "bidirectional" else 1, m.rng.choice((1, 4, 8, 17))
    operands = [x, m.weight(ways, gates * hidden, width), m.weight(ways, gates * hidden, hidden)]
    if m.rng.random() < 0.6:
        operands.append(m.constant(m.array((ways, 2 * gates * hidden), scale=0.3)))
    attributes: dict[str, Any] = {"linear_before_reset": m.rng.randint(0, 1)} if op == "GRU" else {}
    if m.opset < 7:
        attributes = {}
    y = m.add(op, *operands, outputs=2, hidden_size=hidden, direction=direction, **attributes)[0]
    if ways == 1 and m.rng.random() < 0.5:
        m.one("Squeeze", y, m.ints(1))


@step(1)
def rearranged(m: Model) -> None:
    x = m.need(4)
    c, h, w = m.shape(x)[1:]
    kind = m.rng.choice(("depth", "space", "einsum", "nhwc"))
    if kind == "depth" and c % 4 == 0:
        m.one("DepthToSpace", x, blocksize=2, mode=m.rng.choice(("DCR", "CRD")), keeps=True)
    elif kind == "space" and h % 2 == w % 2 == 0:
        m.one("SpaceToDepth", x, blocksize=2, keeps=True)
    elif kind == "einsum":
        m.one("Einsum", x, m.weight(c, 5), equation="nchw,cd->nhwd")
    elif kind == "nhwc":  # as models from TensorFlow are
        y = m.one("Transpose", x, perm=[0, 2, 3, 1], keeps=True)
        y = m.one("Add", y, m.constant(m.array((c,))))
        y = m.one("Transpose", m.one("Relu", y), perm=[0, 3, 1, 2])
        _conv(m, y, 8, m.rng.choice((1, 3)))


@step(0.5)
def feed_forward(m: Model) -> None:
    """Product, activation, product, sum and normalisation, as in transformers."""
    x = m.need(3)
    width = m.shape(x)[2]
    y = m.one("Add", m.one("MatMul", x, m.weight(width, 16)), m.constant(m.array((16,))))
    y = m.one("Mul", m.one("Sigmoid", y), y) if m.rng.random() < 0.5 else m.one("Relu", y)
    y = m.one("Add", m.one("MatMul", y, m.weight(16, width)), m.constant(m.array((width,))))
    y = m.one("Add", y, x)
    if width > 2 and m.has("LayerNormalization"):
        m.one("LayerNormalization", y, m.constant(m.array((width,))), m.constant(m.array((width,))), epsilon=1e-3)


@step(0.7)
def attention_operator(m: Model) -> None:
    """The operator of opset 23: groups of heads, a mask, causal or not."""
    batch, heads, group = m.rng.choice((1, 2)), m.rng.choice((1, 2)), m.rng.choice((1, 2))
    queries, keys, size = m.rng.choice((1, 5, 16)), m.rng.choice((3, 8, 17)), m.rng.choice((4, 8))
    q = m.input(m.array((batch, heads * group, queries, size)))
    k, v = (m.input(m.array((batch, heads, keys, size))) for _ in range(2))
    causal = m.rng.randint(0, 1)
    mask = [] if causal else [m.constant(m.array((queries, keys)))]
    y = m.one("Attention", q, k, v, *mask, is_causal=causal, softcap=m.rng.choice((0.0, 2.0)))
    if m.rng.random() < 0.5:
        m.one("Relu", y)


@step(0.5)
def gated(m: Model) -> None:
    """A product, one half of which opens or closes the other, as in language models."""
    x = m.need(3)
    width = m.shape(x)[2]
    flat = m.one("MatMul", x, m.weight(width, 16))
    a, b = m.add("Split", flat, m.ints(8, 8), outputs=2, axis=2)
    gate = m.one("Swish", a) if m.has("Swish") else m.one("Mul", a, m.one("Sigmoid", a))
    m.one("MatMul", m.one("Mul", gate, b), m.weight(8, width))
