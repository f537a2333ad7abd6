"""Parallel branches, shuffled channels and rotated heads as exporters write them: ways in which random models grow."""

from __future__ import annotations

import numpy as np

from tests.property.random_graph import Model, step
from tests.property.random_graph_forms import Unfit


@step(0.7)
def heads(m: Model) -> None:
    """Several products of one value, of one row or more, each with its bias and activation."""
    x = m.need(2) if m.rng.random() < 0.5 else m.need(3)
    width = m.shape(x)[-1]
    activation = m.rng.choice(("Relu", "Tanh", "Sigmoid", ""))
    row = m.rng.random() < 0.6
    if row:  # one of them
        shape = (*(1,) * (m.values[x].ndim - 1), width)
        axes = range(m.values[x].ndim - 1)
        x = m.one("Slice", x, m.ints(*(0 for _ in axes)), m.ints(*(1 for _ in axes)), m.ints(*axes), keeps=True)
        if m.shape(x) != shape:
            raise Unfit("no row")
    bias = m.rng.random() < 0.7
    results = []
    for _ in range(m.rng.choice((2, 2, 3))):
        outs = m.rng.choice((1, 4, 4, 7, 16))
        if m.values[x].ndim == 2 and bias and m.rng.random() < 0.5:
            y = m.one("Gemm", x, m.weight(outs, width), m.constant(m.array((outs,))), transB=1)
        else:
            y = m.one("MatMul", x, m.weight(width, outs))
            y = m.one("Add", y, m.constant(m.array((outs,)))) if bias else y
        results.append(m.one(activation, y) if activation and m.rng.random() < 0.9 else y)
    for y in results:
        if m.rng.random() < 0.5:
            m.one("MatMul", y, m.weight(m.shape(y)[-1], 4))
    if m.shape(results[0]) == m.shape(results[1]) and m.rng.random() < 0.3:
        m.one("Mul", *results[:2])


@step(0.7)
def parallel_convolutions(m: Model) -> None:
    """Convolutions of one image with equal windows, read by other convolutions and pools."""
    x = m.need(4)
    channels, (h, w) = m.shape(x)[1], m.shape(x)[2:]
    if 0 in m.shape(x):
        raise Unfit("no image")
    if m.rng.random() < 0.3:
        x, h, w = m.one("GlobalAveragePool", x), 1, 1
    window = m.rng.choice((1, 1, 3))
    few = m.rng.choice((16, 32, 8)) if h * w > 40 or channels > 12 else 128
    bias, activation = m.rng.random() < 0.7, m.rng.choice(("Relu", "HardSwish", ""))
    if activation and not m.has(activation):
        activation = "Relu"
    for _ in range(m.rng.choice((2, 2, 3))):
        outs = few * m.rng.choice((1, 1, 2)) if few < 128 else few
        operands = [m.constant(m.array((outs,)))] if bias else []
        y = m.one("Conv", x, m.weight(outs, channels, window, window), *operands, pads=[window // 2] * 4)
        y = m.one(activation, y) if activation else y
        kind = m.rng.choice(("conv", "conv", "pool", "mean", ""))
        if kind == "conv":
            window_behind = m.rng.choice((1, 3, 5))
            m.one("Conv", y, m.weight(4, outs, window_behind, window_behind), pads=[window_behind // 2] * 4)
        elif kind == "pool" and min(h, w) > 1:
            m.one("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
        elif kind == "mean":
            m.one("GlobalAveragePool", y)


@step(0.8)
def shuffled_convolutions(m: Model) -> None:
    """Channels shuffled between convolutions, or before they are split, as in ShuffleNet."""
    x = m.need(4)
    n, c, h, w = m.shape(x)
    if 0 in m.shape(x):
        raise Unfit("no image")
    groups = m.rng.choice((2, 2, 3, 4))
    width = groups * m.rng.choice((2, 4, 8))
    if m.rng.random() < 0.6:
        x = m.one("Conv", x, m.weight(width, c, 1, 1))
        x = m.one("Relu", x) if m.rng.random() < 0.5 else x
    elif c % groups == 0:
        width = c
    else:
        raise Unfit("channels that do not divide")
    apart = m.one("Reshape", x, m.ints(n, groups, width // groups, h, w))
    y = m.one("Reshape", m.one("Transpose", apart, perm=[0, 2, 1, 3, 4]), m.ints(n, width, h, w))
    kind = m.rng.choice(("conv", "grouped", "depthwise", "split", "norm"))
    if kind == "split" and width % 2 == 0:
        a, b = m.add("Split", y, m.ints(width // 2, width // 2), outputs=2, axis=1)
        b = m.one("Relu", m.one("Conv", b, m.weight(width // 2, width // 2, 1, 1)))
        m.one("Concat", a, b, axis=1)
    elif kind == "norm":
        y = m.one("Mul", m.one("Relu", y), m.constant(m.array((1, width, 1, 1))))
        m.one("Conv", y, m.weight(4, width, 1, 1))
    else:
        parts = {"grouped": groups, "depthwise": width}.get(kind, 1)
        window = m.rng.choice((1, 3))
        y = m.one("Conv", y, m.weight(width, width // parts, window, window), group=parts, pads=[window // 2] * 4)
        if m.rng.random() < 0.5:
            m.one("Conv", y, m.weight(8, width, 1, 1))


@step(0.8)
def rotated_attention(m: Model) -> None:
    """Queries and keys rotated by halves as LLaMA and GPT-NeoX write it, out of products of their own or of one."""
    x = m.need(3)
    batch, length, width = m.shape(x)
    if length > 20 or 0 in m.shape(x):
        raise Unfit("too long")
    count, size = m.rng.choice((1, 2)), m.rng.choice((4, 8))
    if m.rng.random() < 0.5:
        flat = m.one("MatMul", x, m.weight(width, count * 3 * size))
        together = m.one("Reshape", flat, m.ints(batch, length, count, 3 * size))
        together = m.one("Transpose", together, perm=[0, 2, 1, 3])
        q, k, v = m.add("Split", together, m.ints(size, size, size), outputs=3, axis=3)
    else:
        q, k, v = (
            m.one("Transpose", m.one("Reshape", m.one("MatMul", x, m.weight(width, count * size)),
                                     m.ints(batch, length, count, size)), perm=[0, 2, 1, 3])
            for _ in range(3)
        )  # fmt: skip
    turned = m.rng.choice((size, size // 2))  # GPT-NeoX turns a part of each head
    angles = np.outer(np.arange(length), 1 / 100 ** (np.arange(turned // 2) / turned))
    both = np.concatenate([angles, angles], axis=1)[None, None]
    cos, sin = (m.constant(np.asarray(f(both), m.dtype)) for f in (np.cos, np.sin))
    q, k = _rotated(m, q, cos, sin, turned), _rotated(m, k, cos, sin, turned)
    scores = m.one("Mul", m.one("MatMul", q, m.one("Transpose", k, perm=[0, 1, 3, 2])), m.number(size**-0.5))
    if m.rng.random() < 0.5:
        scores = m.one("Add", scores, m.constant(np.triu(np.full((length, length), -1e3, m.dtype), 1)))
    mixed = m.one("MatMul", m.one("Softmax", scores, axis=3), v)
    m.one("Reshape", m.one("Transpose", mixed, perm=[0, 2, 1, 3]), m.ints(batch, length, count * size))


def _part(m: Model, x: str, begin: int, end: int) -> str:
    return m.one("Slice", x, m.ints(begin), m.ints(end), m.ints(3), keeps=True)


def _rotated(m: Model, x: str, cos: str, sin: str, turned: int) -> str:
    size = m.shape(x)[3]
    head = _part(m, x, 0, turned) if turned < size else x
    half = m.one("Neg", _part(m, head, turned // 2, turned))
    swapped = m.one("Concat", half, _part(m, head, 0, turned // 2), axis=3)
    result = m.one("Add", m.one("Mul", head, cos), m.one("Mul", swapped, sin))
    return m.one("Concat", result, _part(m, x, turned, size), axis=3) if turned < size else result
