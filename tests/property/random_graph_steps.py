"""Operators of every family, on floats: ways in which random models grow."""

from __future__ import annotations

import math

import numpy as np

from tests.property.random_graph import Model, step

UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Erf", "Softplus", "Elu", "Selu", "LeakyRelu", "HardSigmoid",
         "Softsign", "Exp", "Sin", "Cos", "Atan", "Identity", "Mish", "HardSwish")  # fmt: skip
EXACT = {"Relu", "Abs", "Neg", "Identity"}


@step(4)
def unary(m: Model) -> None:
    x, op = m.pick(), m.rng.choice(UNARY)
    if x is not None and m.has(op) and not (op == "Exp" and np.abs(m.values[x]).max(initial=0) > 5):
        m.one(op, x, keeps=op in EXACT)


@step(4)
def binary(m: Model) -> None:
    """With a constant that broadcasts, or with another tensor of the same shape."""
    x = m.pick()
    if x is None:
        return
    op = m.rng.choice(("Add", "Sub", "Mul", "Div", "Min", "Max", "PRelu"))
    shape = [n if m.rng.random() < 0.6 else 1 for n in m.shape(x)][m.rng.randint(0, len(m.shape(x))) :]
    y = m.constant(m.array(shape))
    others = [n for n in m.values if n not in m.constants and m.shape(n) == m.shape(x) and m.values[n].dtype == m.dtype]
    if m.rng.random() < 0.4 and others and op != "PRelu":
        y = m.rng.choice(others)
    if op == "Div":
        y = m.constant(np.abs(m.array(shape)) + 0.5)
    m.one(op, *((y, x) if m.rng.random() < 0.3 and op in ("Add", "Sub", "Mul") else (x, y)))


@step(1)
def power(m: Model) -> None:
    x = m.pick()
    if x is not None:
        m.one("Pow", x, m.number(m.rng.choice((2.0, 2.0, 3.0, 1.0))))


@step(1)
def clip(m: Model) -> None:
    x = m.pick()
    if x is not None:
        low, high = (m.number(v) for v in (-0.5, m.rng.choice((0.75, 6.0))))
        m.one("Clip", x, low, high, keeps=True)


@step(5)
def convolution(m: Model) -> None:
    x = m.pick(4) or m.pick(3)
    if x is None:
        return
    _, c, *space = m.shape(x)
    groups = m.rng.choice([g for g in (1, 1, 1, 2, c) if g and c % g == 0])
    outs = groups * m.rng.choice((1, 2, 4, 8, 16 // groups or 1))
    kernel = [m.rng.choice((1, 1, 3, 3, 2, 5)) for _ in space]
    dilations = [m.rng.choice((1, 1, 1, 2)) for _ in space]
    pads = [m.rng.choice((0, 1, (k - 1) // 2)) for k in kernel] * 2
    strides = [m.rng.choice((1, 1, 2)) for _ in space]
    if any(s + 2 * p < (k - 1) * d + 1 for s, p, k, d in zip(space, pads, kernel, dilations)):
        return
    operands = [x, m.weight(outs, c // groups, *kernel)]
    if m.rng.random() < 0.6:
        operands.append(m.constant(m.array((outs,))))
    y = m.one("Conv", *operands, kernel_shape=kernel, group=groups, pads=pads, strides=strides, dilations=dilations)
    if m.rng.random() < 0.5:
        shape = (outs,)
        parts = [m.constant(m.array(shape, scale=0.1) + 1), m.constant(m.array(shape)),
                 m.constant(m.array(shape)), m.constant(np.abs(m.array(shape)) + 0.5)]  # fmt: skip
        y = m.one("BatchNormalization", y, *parts)
    if m.rng.random() < 0.4 and m.shape(x) == m.shape(y):
        y = m.one("Add", *(m.rng.sample((x, y), 2)))
    if m.rng.random() < 0.6:
        m.one(m.rng.choice(("Relu", "Sigmoid", "LeakyRelu")), y)


@step(1)
def transposed_convolution(m: Model) -> None:
    x = m.pick(4)
    if x is None:
        return
    c, outs = m.shape(x)[1], m.rng.choice((1, 3, 8))
    kernel, stride = m.rng.choice(((2, 2), (3, 1), (3, 2), (4, 2)))
    attributes: dict[str, list[int]] = {
        "strides": [stride] * 2,
        "pads": [m.rng.choice((0, 1)) if kernel > 2 else 0] * 4,
    }
    m.one("ConvTranspose", x, m.weight(c, outs, kernel, kernel), strides=attributes["strides"], pads=attributes["pads"])


@step(2)
def pool(m: Model) -> None:
    x = m.pick(4)
    if x is None:
        return
    op = m.rng.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if op.startswith("Global"):
        m.one(op, x)
        return
    k = m.rng.choice((2, 3))
    pad = m.rng.choice((0, k - 2))
    if min(m.shape(x)[2:]) + 2 * pad >= k:
        m.one(op, x, kernel_shape=[k, k], strides=[m.rng.choice((1, 2))] * 2, pads=[pad] * 4, keeps=op == "MaxPool")


@step(3)
def product(m: Model) -> None:
    x = m.pick()
    if x is None or m.values[x].ndim < 2:
        return
    k, n = m.shape(x)[-1], m.rng.choice((1, 3, 8, 16, 33))
    y = m.one("MatMul", x, m.weight(k, n))
    if m.rng.random() < 0.6:
        y = m.one("Add", y, m.constant(m.array((n,))))
    if m.rng.random() < 0.3:
        m.one("Relu", y)


@step(1)
def gemm(m: Model) -> None:
    x = m.pick(2)
    if x is None:
        return
    rows, columns = m.shape(x)
    ta, tb, n = m.rng.randint(0, 1), m.rng.randint(0, 1), m.rng.choice((1, 5, 16))
    k = rows if ta else columns
    shape = (n, k) if tb else (k, n)
    bias = [m.constant(m.array((n,)))] if m.rng.random() < 0.7 else []
    m.one("Gemm", x, m.weight(*shape), *bias, transA=ta, transB=tb, alpha=m.rng.choice((1.0, 0.5)), beta=1.0)


@step(1)
def own_product(m: Model) -> None:
    """A tensor times its transpose: both operands are known at run time only."""
    x = m.pick()
    if x is not None and m.values[x].ndim >= 2:
        perm = [*range(m.values[x].ndim - 2), m.values[x].ndim - 1, m.values[x].ndim - 2]
        m.one("MatMul", x, m.one("Transpose", x, perm=perm, keeps=True))


@step(1.5)
def parallel_products(m: Model) -> None:
    """Several products of one input, as queries, keys and values are."""
    x = m.pick()
    if x is None or m.values[x].ndim < 2:
        return
    k, n = m.shape(x)[-1], m.rng.choice((4, 8, 16))
    parts = [m.one("Add", m.one("MatMul", x, m.weight(k, n)), m.constant(m.array((n,)))) for _ in range(3)]
    m.one("Add", m.one("Mul", parts[0], parts[1]), parts[2])


@step(2)
def reduction(m: Model) -> None:
    x = m.pick()
    if x is None or not m.values[x].ndim:
        return
    rank = m.values[x].ndim
    axes = sorted(m.rng.sample(range(rank), m.rng.randint(1, rank)))
    op = m.rng.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare"))
    keep = m.rng.randint(0, 1)
    m.one(op, x, m.ints(*axes), keepdims=keep)


@step(1)
def arg_reduction(m: Model) -> None:
    x = m.pick(exact=True)
    if x is not None and m.values[x].ndim:
        axis = m.rng.randrange(m.values[x].ndim)
        m.one(m.rng.choice(("ArgMax", "ArgMin")), x, axis=axis, keepdims=m.rng.randint(0, 1))


@step(1)
def top_k(m: Model) -> None:
    x = m.pick(exact=True)
    if x is not None and m.values[x].ndim:
        axis = m.rng.randrange(m.values[x].ndim)
        count = m.rng.randint(1, m.shape(x)[axis])
        m.add("TopK", x, m.ints(count), outputs=2, axis=axis)


@step(1.5)
def softmax(m: Model) -> None:
    x = m.pick()
    if x is not None and m.values[x].ndim:
        # In f16 the reference takes the logarithm of what has underflown.
        op = m.rng.choice(("Softmax", "LogSoftmax")) if m.dtype != np.float16 else "Softmax"
        m.one(op, x, axis=m.rng.randint(-1, m.values[x].ndim - 1))


@step(3)
def movement(m: Model) -> None:
    x = m.pick()
    if x is None or not m.values[x].ndim:
        return
    shape, rank = m.shape(x), m.values[x].ndim
    kind = m.rng.choice(
        ("transpose", "reshape", "flatten", "unsqueeze", "slice", "pad", "concat", "split", "gather", "tile")
    )
    axis = m.rng.randrange(rank)
    if kind == "transpose":
        m.one("Transpose", x, perm=m.rng.sample(range(rank), rank), keeps=True)
    elif kind == "reshape":
        dims = [math.prod(shape[: rank // 2 + 1]), *shape[rank // 2 + 1 :]] if rank > 1 else [1, *shape]
        m.one("Reshape", x, m.ints(*(-1 if n == 0 else d for n, d in enumerate(dims))), keeps=True)
    elif kind == "flatten":
        m.one("Flatten", x, axis=axis, keeps=True)
    elif kind == "unsqueeze" and rank < 5:
        m.one("Unsqueeze", x, m.ints(axis), keeps=True)
    elif kind == "slice":
        start = m.rng.randint(0, shape[axis] - 1)
        stride = m.rng.choice((1, 1, 2))
        m.one(
            "Slice",
            x,
            m.ints(start),
            m.ints(m.rng.randint(start + 1, shape[axis])),
            m.ints(axis),
            m.ints(stride),
            keeps=True,
        )
    elif kind == "pad":
        pads = [m.rng.choice((0, 0, 1, 2)) for _ in range(2 * rank)]
        m.one("Pad", x, m.ints(*pads), keeps=True, mode=m.rng.choice(("constant", "edge")))
    elif kind == "concat":
        y = m.one(m.rng.choice(("Relu", "Neg")), x, keeps=True)
        m.one("Concat", *m.rng.sample((x, y, y), 3), axis=axis, keeps=True)
    elif kind == "split" and shape[axis] > 1:
        cut = m.rng.randint(1, shape[axis] - 1)
        a, b = m.add("Split", x, m.ints(cut, shape[axis] - cut), outputs=2, axis=axis)
        m.one(m.rng.choice(("Sigmoid", "Tanh")), m.rng.choice((a, b)))
    elif kind == "gather":
        indices = [m.rng.randint(-shape[axis], shape[axis] - 1) for _ in range(m.rng.randint(1, 4))]
        m.one("Gather", x, m.ints(*indices), axis=axis, keeps=True)
    elif kind == "tile":
        m.one("Tile", x, m.ints(*(m.rng.choice((1, 2)) for _ in shape)), keeps=True)


@step(1)
def resize(m: Model) -> None:
    x = m.pick(4)
    if x is None:
        return
    scale = m.rng.choice((2.0, 2.0, 0.5, 1.5))
    mode = m.rng.choice(("nearest", "linear"))
    if min(m.shape(x)[2:]) * scale >= 1:
        scales = m.constant(np.array([1, 1, scale, scale], np.float32))
        m.one(
            "Resize",
            x,
            "",
            scales,
            mode=mode,
            coordinate_transformation_mode=m.rng.choice(("asymmetric", "half_pixel")),
        )


@step(1)
def integers(m: Model) -> None:
    """Comparison, selection and conversion of exact values."""
    x = m.pick(exact=True)
    if x is None:
        return
    bound = m.number(0.25)
    chosen = m.one(m.rng.choice(("Greater", "Less")), x, bound)
    kind = m.rng.choice(("where", "cast", "count"))
    if kind == "where":
        m.one("Where", chosen, x, bound, keeps=True)
    elif kind == "cast":
        small = np.abs(m.values[x]).max(initial=0) < 128  # what lies outside of its integers, ONNX leaves undefined
        m.one("Cast", m.one("Cast", x, to=m.rng.choice((6, 7, 3 if small else 6))), to=m.float_code)
    else:
        whole = m.one("Cast", chosen, to=7)
        m.one("ReduceSum", whole, m.ints(0), keepdims=1)
