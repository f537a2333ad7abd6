"""Random workloads of every operator family, random layouts for their operands."""

from __future__ import annotations

import random
from typing import Any

from autotune.ops.registry import lookup
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.search_spaces.space.interface import Interface
from autotune.tensor.layout import Layout

EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 48, 50, 64, 67)
SMALL = (1, 2, 3, 4, 5, 7, 8)
UNARY = ("relu", "sigmoid", "tanh", "exp", "sqrt", "erf", "neg", "abs", "floor", "gelu", "clip", "leaky_relu",
         "hard_sigmoid", "hard_swish", "log", "reciprocal", "round", "softplus")  # fmt: skip
EXACT = ("relu", "neg", "abs", "floor", "clip", "leaky_relu")
INTEGER = ("relu", "neg", "abs", "clip")
FLOATS = ("f32", "f32", "f32", "f32", "f16", "bf16", "f64")
INTEGERS = ("i8", "u8", "i32", "i64")


class Draft:
    """A workload in the making."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.inputs: list[WorkloadInput] = []
        self.nodes: list[tuple[str, tuple[int, ...], dict[str, Any]]] = []

    def input(self, shape: tuple[int, ...], dtype: str = "f32") -> int:
        """Negative numbers for inputs until all are known."""
        self.inputs.append(WorkloadInput(TensorType(dtype, shape), self.rng.random() < 0.2))
        return -len(self.inputs)

    def node(self, op: str, *inputs: int, **attrs: Any) -> int:
        defaults = {k: v for k, v in lookup(op).defaults.items() if k not in lookup(op).rare}
        self.nodes.append((op, inputs, {**defaults, **attrs}))
        return len(self.nodes) - 1

    def workload(self, *outputs: int) -> Workload:
        def number(v: int) -> int:
            return -v - 1 if v < 0 else len(self.inputs) + v

        nodes = tuple(WorkloadNode.make(op, tuple(map(number, ins)), **attrs) for op, ins, attrs in self.nodes)
        return Workload(tuple(self.inputs), nodes, tuple(map(number, outputs)))


def random_workload(rng: random.Random) -> Workload:
    """Any family; sizes are awkward: 1, primes, below the vector width."""
    family = rng.choice(
        (
            elementwise,
            elementwise,
            logic,
            movement,
            indexing,
            concat,
            reduction,
            softmax,
            pool,
            resize,
            extend,
            sampled,
            norm,
            scan,
            mixed,
        )
    )
    return family(rng)


def shape(rng: random.Random, rank: int | None = None, extents: tuple[int, ...] = EXTENTS) -> tuple[int, ...]:
    rank = rng.choice((0, 1, 2, 3, 4)) if rank is None else rank
    limit, out = 1 << 14, []
    for _ in range(rank):
        extent = rng.choice([e for e in extents if e <= limit])
        limit //= extent
        out.append(extent)
    rng.shuffle(out)
    return tuple(out)


def elementwise(rng: random.Random) -> Workload:
    d = Draft(rng)
    size = shape(rng)
    dtype = rng.choice(FLOATS) if rng.random() < 0.7 else rng.choice(INTEGERS)
    value = d.input(size, dtype)
    if rng.random() < 0.1:  # not behind arithmetic: comparing rounded numbers has no tolerance
        return d.workload(d.node("less", value, d.input(size, dtype)))
    for _ in range(rng.randint(1, 3)):
        kind = rng.random()
        if kind < 0.5:
            # The reference is float64 itself: what follows a rounded f64 must not magnify the last place.
            kept = EXACT if dtype == "f64" and d.nodes else UNARY
            names = kept if dtype in FLOATS else INTEGER if dtype[0] == "i" else ("relu",)
            value = d.node(rng.choice(names), value)
        elif kind < 0.9:
            other = tuple(rng.choice((1, e)) for e in size)[rng.randint(0, len(size)) :]
            operands = [value, d.input(other, dtype)]
            rng.shuffle(operands)
            value = d.node(rng.choice(("add", "sub", "mul", "max", "min", "div")), *operands)
        else:
            # Rounded numbers are not truncated: a last place would become a whole one.
            dtype = rng.choice((*FLOATS, *(() if dtype in FLOATS else ("i32", "i64"))))
            value = d.node("cast", value, to=dtype)
    return d.workload(value)


def logic(rng: random.Random) -> Workload:
    d = Draft(rng)
    size = shape(rng)
    flags = d.input(size, "bool")
    for _ in range(rng.randint(0, 2)):
        other = d.input(tuple(rng.choice((1, e)) for e in size), "bool")
        flags = d.node("not", flags) if rng.random() < 0.3 else d.node(rng.choice(("and", "or", "xor")), flags, other)
    if rng.random() < 0.3:
        return d.workload(d.node("not", flags))
    dtype = rng.choice((*FLOATS, *INTEGERS))
    a, b = d.input(size, dtype), d.input(tuple(rng.choice((1, e)) for e in size), dtype)
    return d.workload(d.node("where", flags, a, b))


def movement(rng: random.Random) -> Workload:
    d = Draft(rng)
    dtype = rng.choice((*FLOATS, "i8", "i64"))
    kind = rng.choice(("transpose", "reshape", "pad", "slice", "layout", "gather"))
    size = shape(rng, rng.choice((2, 3, 4)))
    x = d.input(size, dtype)
    rank = len(size)
    if kind == "transpose":
        perm = list(range(rank))
        rng.shuffle(perm)
        return d.workload(d.node(kind, x, perm=tuple(perm)))
    if kind == "reshape":
        flat = 1
        for e in size:
            flat *= e
        first = rng.choice([e for e in range(1, flat + 1) if flat % e == 0])
        second = rng.choice([e for e in range(1, flat // first + 1) if flat // first % e == 0])
        return d.workload(d.node(kind, x, shape=rng.choice([(flat,), (first, second, flat // first // second)])))
    if kind == "pad":
        pads = tuple(rng.choice((0, 0, 1, 3)) for _ in range(2 * rank))
        return d.workload(d.node(kind, x, pads=pads, value=1.5 if dtype in FLOATS else 2))
    if kind == "slice":
        begin, count, step = [], [], []
        for e in size:
            s = rng.choice((1, 1, 2, -1, -2))
            n = rng.randint(1, (e - 1) // abs(s) + 1)
            first = rng.randint(0, e - 1 - (n - 1) * abs(s))
            begin.append(first if s > 0 else first + (n - 1) * -s)
            count.append(n)
            step.append(s)
        return d.workload(d.node(kind, x, begin=tuple(begin), size=tuple(count), step=tuple(step)))
    if kind == "gather":
        return d.workload(d.node(kind, x, d.input(shape(rng, 1), "i64"), axis=rng.randrange(rank)))
    return d.workload(d.node(kind, x))


def indexing(rng: random.Random) -> Workload:
    """Run-time indices are 0..7: often outside of the axis."""
    d = Draft(rng)
    kind = rng.choice(("gather_elements", "gather_nd", "scatter_elements", "scatter_nd", "one_hot", "trilu"))
    size = shape(rng, rng.choice((2, 3)))
    dtype, rank = rng.choice((*FLOATS, *INTEGERS)), len(size)
    if kind == "one_hot":
        values = d.input((2,), dtype)
        return d.workload(d.node(kind, d.input(size[1:], "i32"), values, axis=rng.randrange(rank), depth=5))
    x = d.input(size, dtype)
    if kind == "trilu":
        return d.workload(d.node(kind, x, upper=rng.random() < 0.5, k=rng.randint(-9, 9)))
    if kind in ("gather_nd", "scatter_nd"):
        depth, count = rng.randint(0, rank), rng.choice(SMALL)
        tuples = d.input((count, depth), "i64")
        if kind == "gather_nd":
            return d.workload(d.node(kind, x, tuples))
        updates = d.input((count, *size[depth:]), dtype)
        return d.workload(d.node(kind, x, tuples, updates, reduction=rng.choice(("none", "max", "min"))))
    axis = rng.randrange(rank)
    part = tuple(rng.choice(SMALL) if n == axis else rng.randint(1, e) for n, e in enumerate(size))
    indices = d.input(part, rng.choice(("i32", "i64")))
    if kind == "gather_elements":
        return d.workload(d.node(kind, x, indices, axis=axis))
    reduction = rng.choice(("none", "max", "min"))
    return d.workload(d.node(kind, x, indices, d.input(part, dtype), axis=axis, reduction=reduction))


def concat(rng: random.Random) -> Workload:
    d = Draft(rng)
    size = list(shape(rng, rng.choice((1, 2, 4)), SMALL))
    axis = rng.randrange(len(size))
    parts = []
    for _ in range(rng.randint(1, 5)):
        size[axis] = rng.choice(EXTENTS)
        parts.append(d.input(tuple(size)))
    return d.workload(d.node("concat", *parts, axis=axis))


def reduction(rng: random.Random) -> Workload:
    d = Draft(rng)
    dtype = rng.choice((*FLOATS, "i32", "i64"))
    size = shape(rng, rng.choice((1, 2, 3, 4)))
    value = d.input(size, dtype)
    if dtype in ("f32", "f64") and rng.random() < 0.3:
        value = d.node(rng.choice(("exp", "abs", "relu")), value)
    keepdims = rng.random() < 0.5
    if rng.random() < 0.3:
        op = rng.choice(("argmax", "argmin"))
        return d.workload(d.node(op, value, axis=rng.randrange(len(size)), keepdims=keepdims,
                                 select_last_index=rng.random() < 0.5))  # fmt: skip
    axes = tuple(sorted(rng.sample(range(len(size)), rng.randint(0, len(size)))))
    names = ("reduce_sum", "reduce_max", *(("reduce_mean", "reduce_min") if dtype in FLOATS else ()))
    value = d.node(rng.choice(names), value, axes=axes, keepdims=keepdims)
    if dtype in FLOATS and rng.random() < 0.3:
        value = d.node(rng.choice(("relu", "sigmoid", "abs")), value)
    return d.workload(value)


def softmax(rng: random.Random) -> Workload:
    d = Draft(rng)
    size = shape(rng, rng.choice((1, 2, 3, 4)))
    value = d.input(size, rng.choice(FLOATS))
    return d.workload(d.node(rng.choice(("softmax", "softmax", "log_softmax")), value, axis=rng.randrange(len(size))))


def pool(rng: random.Random) -> Workload:
    d = Draft(rng)
    size = (rng.choice((1, 2)), rng.choice((1, 3, 8, 16, 20, 32, 37)), rng.randint(3, 14), rng.randint(3, 14))
    kernel = (rng.randint(1, 3), rng.randint(1, 3))
    pad = tuple(rng.randint(0, k - 1) for k in (*kernel, *kernel))
    attrs: dict[str, Any] = {
        "kernel": kernel, "stride": (rng.randint(1, 3), rng.randint(1, 3)), "pad": pad,
        "ceil_mode": rng.random() < 0.5,
    }  # fmt: skip
    if rng.random() < 0.5:
        attrs["count_include_pad"] = rng.random() < 0.5
        return d.workload(d.node("avg_pool", d.input(size), **attrs))
    value = d.node("max_pool", d.input(size, rng.choice((*FLOATS, "i8"))), **attrs)
    return d.workload(value)


def resize(rng: random.Random) -> Workload:
    d = Draft(rng)
    size = shape(rng, rng.choice((2, 3, 4)))
    mode = rng.choice(("nearest", "linear", "cubic"))
    attrs: dict[str, Any] = {
        "sizes": tuple(max(1, min(80, int(n * rng.choice((0.5, 0.7, 1, 1, 1.5, 2, 3))))) for n in size), "mode": mode,
        "coordinates": rng.choice(("half_pixel", "half_pixel", "align_corners", "asymmetric")),
        "antialias": mode != "nearest" and rng.random() < 0.3,
        "exclude_outside": rng.random() < 0.3,
    }  # fmt: skip
    dtype = rng.choice((*FLOATS, "i8") if mode == "nearest" else FLOATS)  # rounded to integers, sums may differ by one
    return d.workload(d.node("resize", d.input(size, dtype), **attrs))


def extend(rng: random.Random) -> Workload:
    d = Draft(rng)
    size = shape(rng, rng.choice((1, 2, 3, 4)))
    pads = tuple(rng.choice((0, 0, 1, 2, 5)) for _ in (*size, *size))
    return d.workload(d.node("extend", d.input(size, rng.choice((*FLOATS, *INTEGERS))), pads=pads,
                             mode=rng.choice(("edge", "reflect", "wrap"))))  # fmt: skip


def sampled(rng: random.Random) -> Workload:
    """Images at run-time points; what is continuous in them, as points of f32 and f64 round differently."""
    d = Draft(rng)
    kind = rng.choice(("grid", "affine", "roi", "col2im", "deform"))
    n, c = rng.choice((1, 2)), rng.choice((1, 3, 16, 20))
    h, w = rng.randint(2, 9), rng.randint(2, 9)
    if kind == "grid":
        grid = d.input((n, rng.randint(1, 5), rng.randint(1, 20), 2))
        attrs = {"mode": rng.choice(("linear", "cubic")), "padding": rng.choice(("zeros", "border"))}
        last = rng.random() < 0.5
        image = d.input((n, h, w, c) if last else (n, c, h, w))
        return d.workload(
            d.node("grid_sample", image, grid, align_corners=rng.random() < 0.5, channels_last=last, **attrs)
        )
    if kind == "affine":
        return d.workload(d.node("affine_grid", d.input((n, 2, 3)), size=(h, w), align_corners=rng.random() < 0.5))
    if kind == "roi":
        rois, batch = d.input((5, 4)), d.input((5,), "i64")
        return d.workload(d.node("roi_align", d.input((n, c, h, w)), rois, batch, bins=(2, 3), ratio=2))
    if kind == "col2im":
        kernel, stride = (rng.randint(1, 2), rng.randint(1, 3)), (rng.randint(1, 2), rng.randint(1, 3))
        h, w = h + 1, w + 1
        windows = ((h - kernel[0]) // stride[0] + 1) * ((w - kernel[1]) // stride[1] + 1)
        columns = d.input((n, c * kernel[0] * kernel[1], windows))
        return d.workload(d.node("col2im", columns, image=(h, w), kernel=kernel, stride=stride))
    groups = rng.choice((1, 2))
    shifts, data = d.input((n, groups * 2 * 6, h, w)), d.input((n, h + 1, w + 2, groups * c))
    return d.workload(d.node("deform_windows", data, shifts, kernel=(2, 3), groups=groups))


def norm(rng: random.Random) -> Workload:
    d = Draft(rng)
    if rng.random() < 0.5:
        size = shape(rng, 4)
        return d.workload(d.node("lrn", d.input(size), size=rng.choice((1, 3, 5, 4)), beta=rng.choice((0.5, 0.75))))
    size = shape(rng, rng.choice((2, 3)))
    scale, bias = d.input(size[-1:]), d.input(size[-1:])
    return d.workload(d.node("layer_norm", d.input(size), scale, bias))


def scan(rng: random.Random) -> Workload:
    d = Draft(rng)
    size = shape(rng, rng.choice((1, 2, 3)))
    value = d.input(size, rng.choice((*FLOATS, "i64")))
    return d.workload(d.node("cumsum", value, axis=rng.randrange(len(size)), exclusive=rng.random() < 0.5,
                             reverse=rng.random() < 0.5))  # fmt: skip


def mixed(rng: random.Random) -> Workload:
    """Several stages that are no single operator."""
    d = Draft(rng)
    kind = rng.randrange(6)
    if kind == 0:  # row-blocked attention
        b, m, n, k = (rng.choice(SMALL), rng.choice(EXTENTS), rng.choice(EXTENTS), rng.choice(SMALL))
        scores = d.node("matmul", d.input((b, m, k)), d.input((b, n, k)), trans_b=True)
        masked = d.node("add", scores, d.input((m, n)))
        return d.workload(d.node("matmul", d.node("softmax", masked), d.input((b, n, k))))
    if kind == 1:  # outputs that share stages
        size = shape(rng, 2)
        e = d.node("exp", d.input(size))
        s = d.node("reduce_sum", e, axes=(1,))
        return d.workload(*rng.sample((e, s, d.node("div", e, s)), rng.randint(1, 3)))
    if kind == 2:  # something small and expensive, broadcast
        size = shape(rng, 3)
        gate = d.node("sigmoid", d.input((1, size[1], 1)))
        return d.workload(d.node("mul", d.input(size), gate))
    if kind == 3:  # squeeze and excite
        size = (1, rng.choice((8, 16, 20)), rng.randint(1, 9), rng.randint(1, 9))
        x = d.input(size)
        mean = d.node("reduce_mean", x, axes=(2, 3))
        return d.workload(d.node("mul", x, d.node("hard_sigmoid", mean)))
    if kind == 4:
        pad = rng.randint(0, 1)
        x, w = d.input((1, 4, rng.randint(3, 9), rng.randint(3, 9))), d.input((rng.choice((2, 6, 16)), 2, 3, 2))
        return d.workload(d.node("relu", d.node("conv2d", x, w, groups=2, pad=(pad,) * 4)))
    size = shape(rng, 2)
    normal = d.node("softmax", d.input(size))
    return d.workload(d.node("mul", normal, d.input(size[1:])))


def random_interface(workload: Workload, rng: random.Random) -> Interface | None:
    """Row-major, blocked, permuted, with and without halos of zeros or of something else."""
    if rng.random() < 0.3:
        return None
    types = workload.types()
    operands = [(i.type.shape, i.constant) for i in workload.inputs]
    operands += [(types[o].shape, False) for o in workload.outputs]
    same = _layout(4, rng)
    return Interface(tuple(same if len(s) == 4 and rng.random() < 0.7 else _layout(len(s), rng) for s, _ in operands))


def _layout(rank: int, rng: random.Random) -> Layout:
    order = list(range(rank))
    if rng.random() < 0.2:
        rng.shuffle(order)
    blocked = {1} if rank == 4 and rng.random() < 0.5 else {d for d in range(rank) if rng.random() < 0.15}
    halo = [(0, 0) if d in blocked or rng.random() < 0.7 else (rng.randint(0, 2), rng.randint(0, 2)) for d in order]
    halo = [halo[order.index(d)] for d in range(rank)]
    form = Layout.blocked(rank, [(d, rng.choice((4, 8, 16, 3))) for d in sorted(blocked)], order)
    return form.with_halo(halo, rng.choice((0, 0, 5)))
