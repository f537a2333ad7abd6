"""Random definitions: operators on awkward shapes and dtypes, chains behind them, and stages that no operator makes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from autotune.ops.conv import MOST_POINTS
from autotune.ops.registry import algorithms, compute_def, lookup
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.tensor import (
    ComputeDef,
    DType,
    Expr,
    Output,
    Reducer,
    Tensor,
    cast,
    compute,
    compute_many,
    const,
    extern,
    maximum,
    minimum,
    placeholder,
    read,
    recurrence,
    reduce,
    reduce_axis,
    scan,
    select,
    state,
    sum_,
    table,
    unary,
)
from autotune.tensor.expr import binary

EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 19, 24, 31, 32, 33, 37, 48)
FLOATS = ("f32", "f32", "f32", "f64", "f16", "bf16")
INTS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
NUMBERS = FLOATS + INTS
SMOOTH = ("relu", "sigmoid", "tanh", "gelu", "neg", "abs", "hard_sigmoid", "hard_swish", "leaky_relu", "exp", "elu")


def shape_of(rng: random.Random, rank: int, limit: int = 3000) -> tuple[int, ...]:
    """Extents with at most `limit` elements."""
    while True:
        shape = tuple(rng.choice(EXTENTS) for _ in range(rank))
        if math.prod(shape) <= limit:
            return shape


def broadcastable(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that NumPy broadcasts to `shape`."""
    kept = tuple(n if rng.random() < 0.6 else 1 for n in shape)
    return kept[rng.randrange(len(kept)) :] if kept and rng.random() < 0.3 else kept


class WorkloadBuilder:
    """Grows a Workload node by node; value numbers are known once all inputs are."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.inputs: list[WorkloadInput] = []
        self.nodes: list[tuple[str, list[tuple[bool, int]], dict[str, Any]]] = []

    def input(self, dtype: str, shape: tuple[int, ...], constant: bool = False) -> tuple[bool, int]:
        self.inputs.append(WorkloadInput(TensorType(dtype, shape), constant))
        return (True, len(self.inputs) - 1)

    def node(self, op: str, *operands: tuple[bool, int], **attrs: Any) -> tuple[bool, int]:
        usual = {k: v for k, v in lookup(op).defaults.items() if k not in lookup(op).rare}
        defaults = {k: v for k, v in usual.items() if isinstance(v, (bool, int, float, str, tuple))}
        self.nodes.append((op, list(operands), {**defaults, **attrs}))
        return (False, len(self.nodes) - 1)

    def build(self, *outputs: tuple[bool, int]) -> Workload:
        def number(value: tuple[bool, int]) -> int:
            return value[1] if value[0] else len(self.inputs) + value[1]

        nodes = tuple(WorkloadNode.make(op, tuple(map(number, ins)), **attrs) for op, ins, attrs in self.nodes)
        return Workload(tuple(self.inputs), nodes, tuple(map(number, outputs)))

    def type(self, value: tuple[bool, int]) -> TensorType:
        return self.build(value).types()[value[1] if value[0] else len(self.inputs) + value[1]]


def _epilogue(b: WorkloadBuilder, value: tuple[bool, int]) -> tuple[bool, int]:
    rng = b.rng
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        kind = b.type(value)
        if rng.random() < 0.5:
            other = b.input(kind.dtype, broadcastable(rng, kind.shape), rng.random() < 0.3)
            value = b.node(rng.choice(("add", "sub", "mul", "max", "min")), value, other)
        elif DType(kind.dtype).is_float:
            # exp magnifies the rounding of sums, which a float64 reference of float64 kernels cannot tell.
            value = b.node(rng.choice(SMOOTH if kind.dtype != "f64" else SMOOTH[:-2]), value)
        else:
            value = b.node(rng.choice(("relu", "neg", "abs")), value)
    return value


def _pads(rng: random.Random, most: int) -> tuple[int, ...]:
    return tuple(rng.randint(0, most) for _ in range(4))


def _conv(rng: random.Random) -> ComputeDef:
    b = WorkloadBuilder(rng)
    groups = rng.choice((1, 1, 1, 2, 3, 0))
    dtype = rng.choice(("f32", "f32", "f32", "f64", "bf16", "i8", "i32"))
    c, k = rng.choice((1, 2, 3, 4, 8, 16, 17, 20)), rng.choice((1, 2, 3, 5, 8, 16, 17, 20, 32))
    if groups == 0:
        groups = k = c
    c, k = (c + groups - 1) // groups * groups, (k + groups - 1) // groups * groups
    r, s = rng.choice((1, 2, 3, 3)), rng.choice((1, 3, 3, 5))
    dilation = (rng.choice((1, 1, 2)), rng.choice((1, 1, 2)))
    h = rng.randint((r - 1) * dilation[0] + 1, 12)
    w = rng.randint((s - 1) * dilation[1] + 1, 19)
    x = b.input(dtype, (rng.choice((1, 1, 2)), c, h, w))
    weight = b.input(dtype, (k, c // groups, r, s), True)
    stride = (rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3)))
    y = b.node("conv2d", x, weight, stride=stride, pad=_pads(rng, 2), dilation=dilation, groups=groups)
    return compute_def(b.build(_epilogue(b, y)))


def _matmul(rng: random.Random) -> ComputeDef:
    b = WorkloadBuilder(rng)
    m, n, k = (rng.choice(EXTENTS) for _ in range(3))
    dtype = rng.choice(("f32", "f32", "f32", "f64", "f16", "bf16", "i8", "i32", "u8"))
    trans_a, trans_b = rng.random() < 0.3, rng.random() < 0.3
    batch = rng.choice(((), (), (2,), (3, 1)))
    x = b.input(dtype, (*batch, *((k, m) if trans_a else (m, k))))
    y = b.input(dtype, (*(batch if rng.random() < 0.5 else ()), *((n, k) if trans_b else (k, n))), rng.random() < 0.6)
    value = b.node("matmul", x, y, trans_a=trans_a, trans_b=trans_b)
    return compute_def(b.build(_epilogue(b, value)))


def _reduction(rng: random.Random) -> ComputeDef:
    b = WorkloadBuilder(rng)
    shape = shape_of(rng, rng.randint(1, 4))
    rank = len(shape)
    axes = tuple(sorted(rng.sample(range(rank), rng.randint(1, rank))))
    op = rng.choice(("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "argmax", "argmin"))
    floats_only = op in ("reduce_mean", "reduce_prod")
    x = b.input(rng.choice(FLOATS if floats_only else NUMBERS), shape)
    keep = rng.random() < 0.5
    if op.startswith("arg"):
        value = b.node(op, x, axis=rng.randrange(rank), keepdims=keep, select_last_index=rng.random() < 0.3)
        return compute_def(b.build(value))
    if rng.random() < 0.3 and DType(b.type(x).dtype).is_float:
        x = b.node(rng.choice(SMOOTH), x)
    return compute_def(b.build(_epilogue(b, b.node(op, x, axes=axes, keepdims=keep))))


def _rows(rng: random.Random) -> ComputeDef:
    """Softmax, layer normalisation, running sums: several stages along one axis."""
    b = WorkloadBuilder(rng)
    shape = shape_of(rng, rng.randint(1, 3))
    x = b.input(rng.choice(FLOATS), shape)
    axis = rng.randrange(len(shape))
    op = rng.choice(("softmax", "softmax", "log_softmax", "layer_norm", "cumsum", "cumsum"))
    if op == "layer_norm":
        y = b.node(op, x, b.input(b.type(x).dtype, shape[axis:]), b.input(b.type(x).dtype, shape[axis:]), axis=axis)
    elif op == "cumsum":
        y = b.node(op, x, axis=axis, exclusive=rng.random() < 0.3, reverse=rng.random() < 0.3)
    else:
        y = b.node(op, x, axis=axis)
    return compute_def(b.build(_epilogue(b, y)))


def _pool(rng: random.Random) -> ComputeDef:
    b = WorkloadBuilder(rng)
    kernel = (rng.randint(1, 4), rng.randint(1, 4))
    image = (rng.choice((1, 2)), rng.choice((1, 3, 8, 17)), rng.randint(7, 13), rng.randint(7, 13))
    x = b.input(rng.choice(FLOATS), image)
    pad = tuple(rng.randint(0, kernel[d % 2] - 1) for d in range(4))
    stride = (rng.randint(1, 3), rng.randint(1, 3))
    if rng.random() < 0.2:
        y = b.node("lrn", x, size=rng.choice((1, 3, 5)))
    elif rng.random() < 0.5:
        y = b.node("max_pool", x, kernel=kernel, stride=stride, pad=pad, ceil_mode=rng.random() < 0.3)
    else:
        y = b.node("avg_pool", x, kernel=kernel, stride=stride, pad=pad, ceil_mode=rng.random() < 0.3,
                   count_include_pad=rng.random() < 0.5)  # fmt: skip
    return compute_def(b.build(_epilogue(b, y)))


def _movement(rng: random.Random) -> ComputeDef:
    b = WorkloadBuilder(rng)
    shape = shape_of(rng, rng.randint(1, 4))
    rank, dtype = len(shape), rng.choice(NUMBERS)
    x = b.input(dtype, shape)
    for _ in range(rng.randint(1, 2)):
        shape = b.type(x).shape
        rank = len(shape)
        op = rng.choice(("transpose", "reshape", "pad", "slice", "concat", "gather"))
        if op == "transpose":
            x = b.node(op, x, perm=tuple(rng.sample(range(rank), rank)))
        elif op == "reshape":
            cut = rng.randint(0, rank)
            x = b.node(op, x, shape=(math.prod(shape[:cut]), math.prod(shape[cut:])))
        elif op == "pad":
            pads = tuple(rng.randint(0, 2) for _ in range(2 * rank))
            x = b.node(op, x, pads=pads, value=float(rng.choice((0, 0, 3))))
        elif op == "slice":
            begin = tuple(rng.randrange(n) for n in shape)
            step = tuple(rng.choice((1, 1, 2, 3)) for _ in shape)
            size = tuple(rng.randint(1, -(-(n - f) // t)) for n, f, t in zip(shape, begin, step))
            x = b.node(op, x, begin=begin, size=size, step=step)
        elif op == "concat":
            axis = rng.randrange(rank)
            other = tuple(rng.choice(EXTENTS[:8]) if d == axis else n for d, n in enumerate(shape))
            x = b.node(op, x, b.input(dtype, other), axis=axis)
        elif min(shape) >= 8:  # sampled indices are in 0..7
            x = b.node(op, x, b.input("i64", shape_of(rng, rng.randint(1, 2), 40)), axis=rng.randrange(rank))
    return compute_def(b.build(_epilogue(b, x)))


def _winograd(rng: random.Random) -> ComputeDef:
    b = WorkloadBuilder(rng)
    large = ("f5_bf16", "f6_bf16")  # which nobody rounds
    algorithm = rng.choice([a for a in algorithms("conv2d") if a.startswith("winograd") and not a.endswith(large)])
    c, k = rng.choice((1, 3, 8)), rng.choice((1, 5, 16))
    shape = (1, c, rng.randint(4, 9), rng.randint(4, 11))
    if "exact" in algorithm:
        x, weight = b.input(rng.choice(("u8", "i8")), shape), b.input("i8", (k, c, 3, 3), True)
        return compute_def(b.build(b.node("conv2d", x, weight, pad=_pads(rng, 1))), algorithm)
    x = b.input("f32", shape)
    stride, groups = 1, 1
    if algorithm == "winograd_rows":
        weight, groups = b.input("f32", (c, 1, rng.randint(2, 4), rng.randint(1, 3)), True), c
    else:
        stride = rng.choice((1, 1, 2))
        window = 3 if stride == 1 else rng.randint(3, 4)
        weight = b.input("f32", (k, c, window, window), True)
    rounded = {"rounded": MOST_POINTS} if algorithm.endswith("bf16") else {}
    y = b.node("conv2d", x, weight, stride=(stride, stride), pad=_pads(rng, 1), groups=groups, **rounded)
    return compute_def(b.build(y), algorithm)


def _pointwise(rng: random.Random) -> ComputeDef:
    """Chains over every dtype, with the operators that have corner cases."""
    shape = shape_of(rng, rng.randint(1, 4))
    dtype = DType(rng.choice((*NUMBERS, *INTS, "bool")))
    inputs = [placeholder(shape, dtype, "in0")]
    permuted = tuple(rng.sample(range(len(shape)), len(shape)))
    inputs.append(placeholder(tuple(shape[d] for d in permuted), dtype, "in1"))
    live: list[Tensor] = [inputs[0]]
    for n in range(rng.randint(1, 4)):
        earlier = rng.choice(live)

        def body(*i: Expr, earlier: Tensor = earlier) -> Expr:
            x: Expr = earlier[tuple(i)]
            y: Expr = inputs[1][tuple(i[d] for d in permuted)]
            return _operation(rng, x, cast(x.dtype, y))

        live.append(compute(shape, body, f"t{n}"))
    outputs = [live[-1]]
    if len(live) > 2 and rng.random() < 0.3:
        outputs.append(live[-2])
    return ComputeDef.build(inputs, outputs, [f"out{n}" for n in range(len(outputs))])


def _operation(rng: random.Random, x: Expr, y: Expr) -> Expr:
    if x.dtype is DType.bool:
        return rng.choice((lambda: x & y, lambda: x | y, lambda: binary("xor", x, y), lambda: unary("not", x),
                           lambda: cast(rng.choice(NUMBERS), x), lambda: x + y, lambda: x * y))()  # fmt: skip
    if rng.random() < 0.25:
        return select(rng.choice((x < y, x <= y, x > y, x >= y, binary("eq", x, y), binary("ne", x, y))), x, y)
    common: list[Callable[[], Expr]] = [
        lambda: x + y, lambda: x - y, lambda: x * y, lambda: maximum(x, y), lambda: minimum(x, y), lambda: -x,
        lambda: unary("abs", x), lambda: maximum(x, 0), lambda: minimum(x, 3), lambda: binary("lt", x, y),
        lambda: x * x - y * 2, lambda: 3 - x, lambda: x + 1,
    ]  # fmt: skip
    if x.dtype.is_float:
        common += [
            lambda: x / (y * y + 1.0), lambda: unary("sqrt", unary("abs", x)), lambda: unary("floor", x), lambda: x / y,
            lambda: unary("ceil", y), lambda: unary("round", x), lambda: unary("isnan", x / y), lambda: x - y * x,
            lambda: unary("tanh", x), lambda: unary("erf", x), lambda: unary("log", unary("abs", x) + 1.0),
            lambda: unary("sin", x), lambda: unary("exp", minimum(x, 2.0)), lambda: cast(rng.choice(FLOATS), x),
        ]  # fmt: skip
    else:
        common += [
            lambda: x / y, lambda: x // y, lambda: x % y, lambda: x & y, lambda: x | y, lambda: binary("xor", x, y),
            lambda: unary("not", x), lambda: binary("truncdiv", x, y), lambda: cast(rng.choice(NUMBERS), x),
            lambda: binary("shl", x, y & 7), lambda: binary("shr", x, y & 7), lambda: x / 3, lambda: x % 5,
        ]  # fmt: skip
    return rng.choice(common)()


def _special(rng: random.Random) -> ComputeDef:
    """Stages that no operator has: several outputs, tables, indirect reads, own reducers, windows of computed data."""
    kind = rng.choice(("two", "table", "gather", "online", "window", "scan", "diagonal", "top_k"))
    m, n = rng.choice(EXTENTS), rng.choice(EXTENTS)
    x = placeholder((m, n), "f32", "in0")
    inputs, outputs = [x], ["out0"]
    if kind == "two":
        a, b = compute_many((m, n), lambda i, j: (x[i, j] * 2.0, x[i, j] - 1.0), ("a", "b"))
        k = reduce_axis(n, "k")
        results = [compute((m,), lambda i: sum_(a[i, k] * b[i, k], k), "s"), b]
        return ComputeDef.build(inputs, results, ["out0", "out1"])
    if kind == "top_k":
        count = rng.randint(1, n)
        x = placeholder((m, n), rng.choice(NUMBERS), "in0")
        y = compute((m, n), lambda i, j: maximum(x[i, j], 0), "y")
        found = (Output("value", (count,), x.dtype), Output("index", (count,), DType.i64))
        value, index = extern("top_k", [y], (m,), found, k=count)
        return ComputeDef.build([x], [index, compute((m, count), lambda i, j: -value[i, j], "z")])
    if kind == "table":
        t = table("T", [[1.0, 0.0, -1.0, 2.0], [0.0, 1.0, 1.0, 0.5]])
        k = reduce_axis(4, "k")
        x = placeholder((4, n), "f32", "in0")
        y = compute((2, n), lambda i, j: sum_(t(i, k) * x[k, j], k), "y")
        return ComputeDef.build([x], [y], outputs)
    if kind == "gather":
        rows = max(8, m)
        x = placeholder((rows, n), rng.choice(("f32", "i8", "f64")), "in0")
        where = placeholder((m, n), rng.choice(("i64", "i32", "u8")), "in1")
        y = compute((m, n), lambda i, j: x[cast(DType.i64, where[i, j]) % rows, j], "y")
        return ComputeDef.build([x, where], [y], outputs)
    if kind == "online":
        k = reduce_axis(n, "k")
        lm, ls = Reducer.left(0, DType.f32), Reducer.left(1, DType.f32)
        rm, rs = Reducer.right(0, DType.f32), Reducer.right(1, DType.f32)
        top = maximum(lm, rm)
        fold = ls * unary("exp", lm - top) + rs * unary("exp", rm - top)
        online = Reducer("online", (DType.f32,) * 2, (const(-1e30), const(0.0)), (top, fold))
        top_, total = compute_many((m,), lambda i: reduce(online, (x[i, k], const(1.0)), k), ("top", "total"))
        y = compute((m, n), lambda i, j: unary("exp", x[i, j] - top_[i]) / total[i], "y")
        return ComputeDef.build(inputs, [y], outputs)
    if kind == "window":
        left, right = rng.randint(0, 2), rng.randint(0, 2)
        y = compute((m, n), lambda i, j: x[i, j] * 2.0 + 1.0, "y")
        k = reduce_axis(left + right + 1, "k")
        z = compute(
            (m, n),
            lambda i, j: sum_(read(y, (i, j + k.var - left), (j + k.var - left >= 0) & (j + k.var - left < n)), k), "z",
        )  # fmt: skip
        k2 = reduce_axis(2, "q")
        out = compute((m, max(n // 2, 1)), lambda i, j: sum_(z[i, minimum(j * 2 + k2.var, n - 1)], k2), "w")
        return ComputeDef.build(inputs, [out if n > 1 else z], outputs)
    if kind == "scan":
        axis = rng.randrange(2)
        first = scan((m, n), axis, lambda p, i, j: p * 0.5 + x[i, j], rng.choice((0.0, 1.0)), name="h")
        y = compute((m, n), lambda i, j: first[i, j] - x[i, j], "y")
        return ComputeDef.build(inputs, [y] if rng.random() < 0.5 else [y, first])
    square = placeholder((m, m), "f32", "in0")
    y = compute((m,), lambda i: square[i, i] + square[m - 1 - i, i], "y")
    return ComputeDef.build([square], [y], outputs)


def _dot(rng: random.Random) -> ComputeDef:
    """Products of narrow types, as dot-product instructions take them."""
    left, right, total = rng.choice((("u8", "i8", "i32"), ("i8", "u8", "i32"), ("bf16", "bf16", "f32")))
    m, n, k = rng.choice(EXTENTS), rng.choice(EXTENTS), rng.choice((4, 8, 12, 16, 40, 64, 6, 7))
    a, b = placeholder((m, k), left, "in0"), placeholder((k, n), right, "in1", constant=rng.random() < 0.5)
    r = reduce_axis(k, "k")
    c = compute((m, n), lambda i, j: sum_(cast(total, a[i, r]) * cast(total, b[r, j]), r), "C")
    return ComputeDef.build([a, b], [compute((m, n), lambda i, j: maximum(c[i, j], 0), "D")])


def _recurrent(rng: random.Random) -> ComputeDef:
    """Cells of a recurrence: several stages per step, which read each other's last step at any element."""
    steps, n = rng.randint(1, 6), rng.choice((1, 2, 5, 8, 16, 19, 33))
    dtype = rng.choice(("f32", "f32", "f64"))
    x, r = placeholder((steps, n), dtype, "in0"), placeholder((n, n), dtype, "in1", constant=rng.random() < 0.5)
    h, c = state((steps, n), dtype, "h"), state((steps, n), dtype, "c")
    back, k = rng.choice((1, 1, 2)), reduce_axis(n, "k")
    first = rng.choice((0.0, 0.5))
    before = compute((steps, n), lambda t, i: read(h, (t - back, i), when=t >= back, otherwise=first), "before")
    fed = compute((steps, n), lambda t, i: sum_(r[i, k] * before[t, k], k), "fed")

    def step(t: Expr, i: Expr) -> tuple[Expr, Expr]:
        kept = read(c, (t - 1, n - 1 - i), when=t >= 1) * 0.5 + x[t, i]
        return unary("tanh", kept * 0.1 + fed[t, i] * (0.5 / n)), kept

    if rng.random() < 0.5:
        new = recurrence([h, c], compute_many((steps, n), step, ("new_h", "new_c")))
    else:
        update = compute((steps, n), lambda t, i: step(t, i)[1], "new_c")
        mixed = compute((steps, n), lambda t, i: step(t, i)[0] + update[t, i] * 0.1, "new_h")
        new = recurrence([h, c], [mixed, update])
    last = compute((n,), lambda i: new[1][steps - 1, i] * 2.0, "last")
    outputs = rng.choice(([new[0]], [new[0], last], [last, new[1]], [last]))
    return ComputeDef.build([x, r], outputs, [f"out{m}" for m in range(len(outputs))])


KINDS: dict[str, Callable[[random.Random], ComputeDef]] = {
    "conv": _conv, "matmul": _matmul, "reduction": _reduction, "rows": _rows, "pool": _pool, "movement": _movement,
    "winograd": _winograd, "pointwise": _pointwise, "special": _special, "dot": _dot,
    "recurrent": _recurrent,
}  # fmt: skip
_WEIGHTS = (5, 4, 3, 4, 2, 3, 1, 4, 4, 2, 2)


def random_compute(rng: random.Random) -> tuple[str, ComputeDef]:
    """(kind, definition)."""
    kind = rng.choices(tuple(KINDS), _WEIGHTS)[0]
    return kind, KINDS[kind](rng)
