"""Integers, truth values, quantised tensors, indices and branches: ways in which random models grow."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.property.random_graph import Model, info, run_node, step
from tests.property.random_graph_forms import EVALUATED, Unfit

INTEGERS = ("int32", "int64", "int32", "int64", "int8", "uint8", "int16", "uint16", "uint32", "uint64")


def _integers(m: Model, name: str) -> str:
    """An integer tensor: one there is, a new input, or what floats are when they are cut off."""
    found = m.pick(dtype=name)
    if found is not None and m.rng.random() < 0.7:
        return found
    x = m.need()
    low = 0 if name.startswith("u") else -20
    drawn = np.random.default_rng(m.rng.getrandbits(32)).integers(low, 21, m.shape(x))
    if m.rng.random() < 0.5 and m.pick(exact=True) is not None and low:
        code = helper.np_dtype_to_tensor_dtype(np.dtype(name))
        return m.one("Cast", m.need(exact=True), to=code, keeps=True)
    return m.input(drawn.astype(name))


@step(2)
def integer_arithmetic(m: Model) -> None:
    name = m.rng.choice(INTEGERS)
    x = _integers(m, name)
    size = m.shape(x)
    other = m.constant(np.array(m.rng.randint(1, 5), name))
    if m.rng.random() < 0.5:
        drawn = np.random.default_rng(m.rng.getrandbits(32)).integers(1, 9, size[m.rng.randint(0, len(size)) :])
        other = m.constant(drawn.astype(name))
    for _ in range(m.rng.randint(1, 3)):
        op = m.rng.choice(("Add", "Sub", "Mul", "Min", "Max", "Abs", "Neg", "Sign", "Mod", "Where", "BitwiseAnd"))
        if op in ("Abs", "Neg", "Sign"):
            x = m.one(op, x, keeps=True)
        elif op == "Where":
            x = m.one(op, m.one("Greater", x, other, keeps=True), x, other, keeps=True)
        else:
            x = m.one(op, x, other, keeps=True)
    if m.rng.random() < 0.5:
        m.one("Cast", x, to=m.float_code, keeps=True)


@step(1)
def integer_reduction(m: Model) -> None:
    x = _integers(m, m.rng.choice(("int32", "int64", "int8", "uint8")))
    rank = m.values[x].ndim
    op = m.rng.choice(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "CumSum", "ArgMax", "TopK"))
    if not rank:
        return
    axis = m.rng.randrange(rank)
    if op == "CumSum":
        place = m.constant(np.array(axis, np.int64))
        m.one(op, x, place, exclusive=m.rng.randint(0, 1), reverse=m.rng.randint(0, 1), keeps=True)
    elif op == "ArgMax":
        m.one(op, x, axis=axis, keepdims=m.rng.randint(0, 1), keeps=True)
    elif op == "TopK":
        m.add(op, x, m.ints(m.rng.randint(1, m.shape(x)[axis])), outputs=2, axis=axis, keeps=True)
    else:
        m.one(op, x, m.ints(axis), keepdims=m.rng.randint(0, 1), keeps=True)


@step(1.5)
def logic(m: Model) -> None:
    """Comparisons of exact values, joined, and something chosen by them."""
    x = m.need(exact=True)
    a = m.one(m.rng.choice(("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")), x, m.number(0.5), keeps=True)
    b = m.one("Less", x, m.number(-0.25), keeps=True)
    both = m.one(m.rng.choice(("And", "Or", "Xor")), a, b, keeps=True)
    if m.rng.random() < 0.5:
        both = m.one("Not", both, keeps=True)
    kind = m.rng.choice(("where", "cast", "none", "count"))
    if kind == "where":
        m.one("Where", both, x, m.one("Neg", x, keeps=True), keeps=True)
    elif kind == "cast":
        m.one("Cast", both, to=m.float_code, keeps=True)
    elif kind == "count" and m.values[x].ndim:
        m.one("ReduceSum", m.one("Cast", both, to=6, keeps=True), m.ints(0), keepdims=0, keeps=True)


@step(1)
def rounding(m: Model) -> None:
    """Steps are exact only for exact values."""
    x = m.need(exact=True)
    y = m.one(m.rng.choice(("Floor", "Ceil", "Round", "Sign")), x, keeps=True)
    if m.rng.random() < 0.5:
        m.one("Sub", x, y, keeps=True)


@step(1)
def quantised(m: Model) -> None:
    """Quantised and made floats again, and then perhaps a product with quantised weights."""
    x = m.need(exact=True)
    if m.dtype != np.float32:
        return
    scale = m.constant(np.array(m.rng.choice((0.0625, 0.03125)), np.float32))
    zero = m.constant(np.array(m.rng.choice((0, 128, 7)), np.uint8))
    y = m.one("DequantizeLinear", m.one("QuantizeLinear", x, scale, zero, keeps=True), scale, zero, keeps=True)
    rank = m.values[y].ndim
    if rank < 2 or m.rng.random() < 0.4:
        return
    spatial, outs = rank - 2, m.rng.choice((1, 4, 16, 17))
    if rank > 2:
        shape: tuple[int, ...] = (outs, m.shape(y)[1], *((1,) * spatial))
        axis = 0
    else:
        shape, axis = (m.shape(y)[1], outs), 1
    drawn = np.random.default_rng(m.rng.getrandbits(32)).integers(-127, 128, shape).astype(np.int8)
    scales = m.constant(np.full(outs, 0.0078125, np.float32) * np.arange(1, outs + 1, dtype=np.float32))
    zeros = m.constant(np.zeros(outs, np.int8))
    weight = m.one("DequantizeLinear", m.constant(drawn), scales, zeros, axis=axis)
    y = m.one("Conv" if rank > 2 else "MatMul", y, weight)
    if m.rng.random() < 0.5:
        m.one("Relu", y)


@step(0.7)
def integer_product(m: Model) -> None:
    """u8 times i8 in i32: exact."""
    x = _integers(m, "uint8")
    if m.values[x].ndim < 2:
        return
    rng = np.random.default_rng(m.rng.getrandbits(32))
    zero = m.constant(np.array(m.rng.choice((0, 3)), np.uint8))
    if m.values[x].ndim == 4 and m.rng.random() < 0.6:
        window = m.rng.choice(((1, 1), (3, 3), (2, 1)))
        if any(n < k for n, k in zip(m.shape(x)[2:], window, strict=True)):
            raise Unfit("a window beyond the image")
        shape = (m.rng.choice((1, 8, 17)), m.shape(x)[1], *window)
        y = m.one("ConvInteger", x, m.constant(rng.integers(-127, 128, shape).astype(np.int8)), zero, keeps=True)
    else:
        weight = m.constant(rng.integers(-127, 128, (m.shape(x)[-1], m.rng.choice((1, 5, 16)))).astype(np.int8))
        y = m.one("MatMulInteger", x, weight, zero, keeps=True)
    if m.rng.random() < 0.5:
        m.one("Cast", y, to=m.float_code, keeps=True)


@step(1.5)
def indexing(m: Model) -> None:
    x = m.need()
    shape, rank = m.shape(x), m.values[x].ndim
    if not rank:
        return
    axis = m.rng.randrange(rank)
    rng = np.random.default_rng(m.rng.getrandbits(32))
    kind = m.rng.choice(
        ("GatherElements", "ScatterElements", "GatherND", "ScatterND", "OneHot", "Trilu", "Expand", "ReverseSequence",
         "Gather")
    )  # fmt: skip
    count = m.rng.randint(1, 4)
    part = (*shape[:axis], count, *shape[axis + 1 :])
    if kind == "GatherElements":
        m.one(kind, x, m.constant(rng.integers(0, shape[axis], part)), axis=axis, keeps=True)
    elif kind == "ScatterElements":
        count = min(count, shape[axis])
        part = (*shape[:axis], count, *shape[axis + 1 :])
        places = rng.permuted(np.broadcast_to(np.arange(shape[axis]), (*part[:axis], *part[axis + 1 :], shape[axis])),
                              axis=-1)[..., :count]  # fmt: skip
        indices = m.constant(np.ascontiguousarray(np.moveaxis(places, -1, axis)).astype(np.int64))
        m.one(kind, x, indices, m.constant(m.array(part)), axis=axis, keeps=True)
    elif kind == "GatherND":
        depth = m.rng.randint(1, rank)
        m.one(kind, x, m.constant(rng.integers(0, shape[:depth], (count, depth))), keeps=True)
    elif kind == "ScatterND":
        rows = rng.permutation(shape[0])[:count].reshape(-1, 1)
        m.one(kind, x, m.constant(rows), m.constant(m.array((len(rows), *shape[1:]))), keeps=True)
    elif kind == "OneHot":
        indices = _integers(m, "int64")
        m.one(kind, indices, m.constant(np.array(7)), m.constant(np.array([0, 1], m.dtype)), keeps=True)
    elif kind == "Trilu" and rank > 1:
        m.one(kind, x, m.constant(np.array(m.rng.randint(-2, 3))), upper=m.rng.randint(0, 1), keeps=True)
    elif kind == "Expand":
        m.one(kind, x, m.ints(*(m.rng.choice((n, 1)) if n > 1 else m.rng.choice((1, 3)) for n in shape)), keeps=True)
    elif kind == "Gather":  # at run time
        place = m.input(rng.integers(-shape[axis], shape[axis], (count,)))
        m.one(kind, x, place, axis=axis, keeps=True)


@step(0.7)
def branch(m: Model) -> None:
    """If with a constant condition: both branches read the outer tensor."""
    x = m.need()
    chosen = m.rng.random() < 0.5
    name = f"v{len(m.nodes)}_0"
    branches = []
    for inner, op in (("yes", "Abs"), ("no", "Neg")):
        node = helper.make_node(op, [x], [f"{name}_{inner}"])
        branches.append(helper.make_graph([node], inner, [], [info(f"{name}_{inner}", m.values[x])]))
    condition = m.constant(np.array(chosen))
    node = helper.make_node("If", [condition], [name], then_branch=branches[0], else_branch=branches[1])
    right = helper.make_node("Abs" if chosen else "Neg", [x], [name])
    (m.values[name],) = run_node(right, {x: m.values[x]}, max(m.opset, EVALUATED))
    if m.opset < 7:  # the output of If then had to be told apart by shape inference of another kind
        raise Unfit("If")
    m.nodes.append(node)
    if x in m.exact:
        m.exact.add(name)


@step(1)
def shape_arithmetic(m: Model) -> None:
    """A shape taken apart and put together again, as exporters write views."""
    x = m.need()
    rank = m.values[x].ndim
    if rank < 2:
        return
    size = m.one("Shape", x, keeps=True)
    first = m.one("Gather", size, m.ints(0), axis=0, keeps=True)
    shape = m.one("Concat", first, m.ints(-1), axis=0, keeps=True)
    m.one("Reshape", x, shape, keeps=True)


@step(0.5)
def filled(m: Model) -> None:
    """A constant of another tensor's shape, added."""
    x = m.need()
    value = helper.make_tensor("value", m.float_code, [1], [0.5])
    y = m.one("ConstantOfShape", m.one("Shape", x, keeps=True), value=value, keeps=True)
    m.one("Add", x, y)
