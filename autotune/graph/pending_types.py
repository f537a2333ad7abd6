"""Types of operators that `autotune.ops` does not have yet; goes away with the last of them.

`pending_type(op, operands, attrs)` gives `(dtype, shape)` of the result or raises WorkloadError. It computes types
only (no tensor expressions), so that a 10,000-node graph is checked in milliseconds; tests hold it against
the operators of `autotune.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.errors import WorkloadError
from autotune.graph.ir import Value
from autotune.ops.workload import AttrValue

Shape = tuple[int, ...]
Typed = tuple[str, Shape]
AttrMap = Mapping[str, AttrValue]
Rule = Callable[[str, Sequence[Value], AttrMap], Typed]

BINARY = ("add", "sub", "mul", "div", "pow", "min", "max")
UNARY = ("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "erf", "neg", "abs", "reciprocal", "floor", "ceil",
         "gelu", "clip", "leaky_relu", "hard_sigmoid", "hard_swish")  # fmt: skip
ELEMENTWISE = frozenset((*BINARY, *UNARY, "where", "cast"))
REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
POOLS = ("max_pool2d", "avg_pool2d")
MAX_ELEMENTS = 2**40  # 1.1e12: no real tensor; sizes beyond it are damage or attack, and int64 stays far away


def pending_type(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    """(dtype, shape) of `op` on `operands`. Raises WorkloadError if the types or attributes do not fit."""
    rule = _RULES.get(op)
    if rule is None:
        raise WorkloadError(f"unknown operator '{op}'; known: {', '.join(sorted(_RULES))}")
    dtype, shape = rule(op, operands, attrs)
    size = 1
    for extent in shape:
        if extent < 0:
            raise WorkloadError(f"{op}: the result would have shape {shape}")
        size *= extent
    if size > MAX_ELEMENTS:
        raise WorkloadError(f"{op}: a result of shape {shape} has more than 2^40 elements")
    return dtype, shape


def known_operators() -> frozenset[str]:
    """Names of all operators that a Graph may hold."""
    return frozenset(_RULES)


def broadcast(op: str, *shapes: Shape) -> Shape:
    """NumPy broadcasting of shapes, or WorkloadError."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for position, extent in enumerate(shape, start=rank - len(shape)):
            if extent != 1:
                if result[position] not in (1, extent):
                    raise WorkloadError(f"{op}: shapes {' and '.join(map(str, shapes))} do not broadcast")
                result[position] = extent
    return tuple(result)


def _operands(op: str, operands: Sequence[Value], count: int) -> Sequence[Value]:
    if len(operands) != count:
        raise WorkloadError(f"{op} takes {count} operands, got {len(operands)}")
    return operands


def _same_dtype(op: str, operands: Sequence[Value]) -> str:
    dtypes = {operand.dtype for operand in operands}
    if len(dtypes) != 1:
        raise WorkloadError(f"{op}: operands have different dtypes: {', '.join(o.dtype for o in operands)}")
    return operands[0].dtype


def _ints(op: str, attrs: AttrMap, name: str, count: int | None = None) -> Shape:
    value = attrs.get(name)
    if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
        raise WorkloadError(f"{op}: attribute '{name}' must be a tuple of integers, not {value!r}")
    if count is not None and len(value) != count:
        raise WorkloadError(f"{op}: attribute '{name}' needs {count} integers, got {value}")
    return tuple(int(item) for item in value)


def _int(op: str, attrs: AttrMap, name: str) -> int:
    value = attrs.get(name)
    if not isinstance(value, int):
        raise WorkloadError(f"{op}: attribute '{name}' must be an integer, not {value!r}")
    return int(value)


def _axis(op: str, attrs: AttrMap, rank: int) -> int:
    axis = _int(op, attrs, "axis")
    if not 0 <= axis < rank:
        raise WorkloadError(f"{op}: axis {axis} is outside a tensor of rank {rank}")
    return axis


def _binary(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    a, b = _operands(op, operands, 2)
    dtype = a.dtype if op == "pow" else _same_dtype(op, operands)
    return dtype, broadcast(op, a.shape, b.shape)


def _unary(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    (x,) = _operands(op, operands, 1)
    return x.dtype, x.shape


def _where(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    condition, a, b = _operands(op, operands, 3)
    if condition.dtype != "bool":
        raise WorkloadError(f"where: the condition must be bool, not {condition.dtype}")
    return _same_dtype(op, (a, b)), broadcast(op, condition.shape, a.shape, b.shape)


def _cast(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    (x,) = _operands(op, operands, 1)
    return str(attrs["to"]), x.shape


def _conv2d(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    x, w = _operands(op, operands, 2)
    dtype = _same_dtype(op, operands)
    if len(x.shape) != 4 or len(w.shape) != 4:
        raise WorkloadError(f"conv2d: data {x.shape} and weight {w.shape} must both have 4 dimensions")
    groups = _int(op, attrs, "groups")
    if groups < 1:
        raise WorkloadError(f"conv2d: groups must be positive, not {groups}")
    if x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise WorkloadError(
            f"conv2d: {x.shape[1]} input channels do not fit weight {w.shape} with groups={groups}"
            f" (needs {w.shape[1] * groups} and an output count divisible by groups)"
        )
    kernel = (w.shape[2], w.shape[3])
    return dtype, (x.shape[0], w.shape[0], *_window(op, x.shape[2:], kernel, attrs, ceil_mode=False))


def _window(op: str, extents: Shape, kernel: Shape, attrs: AttrMap, ceil_mode: bool) -> Shape:
    """Spatial extents after sliding a window; `pad` is (top, left, bottom, right)."""
    stride, dilation, pad = _ints(op, attrs, "stride", 2), _ints(op, attrs, "dilation", 2), _ints(op, attrs, "pad", 4)
    if min(*stride, *dilation, *kernel) < 1 or min(pad) < 0:
        raise WorkloadError(f"{op}: impossible stride={stride} dilation={dilation} kernel={kernel} pad={pad}")
    result = []
    for d, extent in enumerate(extents):
        reach = extent + pad[d] + pad[d + 2] - dilation[d] * (kernel[d] - 1) - 1
        if reach < 0:
            raise WorkloadError(f"{op}: kernel {kernel} with dilation {dilation} is larger than the padded {extents}")
        count = (reach + (stride[d] - 1 if ceil_mode else 0)) // stride[d] + 1
        if ceil_mode and (count - 1) * stride[d] >= extent + pad[d]:
            count -= 1  # a window that would start in the end padding is dropped
        result.append(count)
    return tuple(result)


def _pool(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    (x,) = _operands(op, operands, 1)
    if len(x.shape) != 4:
        raise WorkloadError(f"{op}: data {x.shape} must have 4 dimensions")
    kernel = _ints(op, attrs, "kernel", 2)
    return x.dtype, (*x.shape[:2], *_window(op, x.shape[2:], kernel, attrs, bool(attrs["ceil_mode"])))


def _matmul(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    a, b = _operands(op, operands, 2)
    dtype = _same_dtype(op, operands)
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise WorkloadError(f"matmul: operands {a.shape} and {b.shape} need at least 2 dimensions")
    m, k = a.shape[-2:] if not attrs["trans_a"] else a.shape[:-3:-1]
    k2, n = b.shape[-2:] if not attrs["trans_b"] else b.shape[:-3:-1]
    if k != k2:
        raise WorkloadError(f"matmul: inner extents of {a.shape} and {b.shape} differ ({k} and {k2})")
    return dtype, (*broadcast(op, a.shape[:-2], b.shape[:-2]), m, n)


def _same_along_axis(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    (x,) = _operands(op, operands, 1)
    _axis(op, attrs, len(x.shape))
    return x.dtype, x.shape


def _lrn(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    (x,) = _operands(op, operands, 1)
    if len(x.shape) < 2 or _int(op, attrs, "size") < 1:
        raise WorkloadError(f"lrn: needs at least 2 dimensions and a positive size, got {x.shape}, {attrs['size']}")
    return x.dtype, x.shape


def _reduce(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    (x,) = _operands(op, operands, 1)
    axes = _ints(op, attrs, "axes")
    return x.dtype, _reduced(op, x.shape, axes, bool(attrs["keepdims"]))


def _reduced(op: str, shape: Shape, axes: Shape, keepdims: bool) -> Shape:
    if len(set(axes)) != len(axes) or any(not 0 <= axis < len(shape) for axis in axes):
        raise WorkloadError(f"{op}: axes {axes} do not fit a tensor of rank {len(shape)}")
    if keepdims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def _argreduce(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    (x,) = _operands(op, operands, 1)
    axis = _axis(op, attrs, len(x.shape))
    return "i64", _reduced(op, x.shape, (axis,), bool(attrs["keepdims"]))


def _concat(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    if not operands:
        raise WorkloadError("concat: needs at least one operand")
    first = operands[0].shape
    axis = _axis(op, attrs, len(first))
    if any(len(o.shape) != len(first) or _without(o.shape, axis) != _without(first, axis) for o in operands):
        raise WorkloadError(f"concat: shapes {[o.shape for o in operands]} differ outside axis {axis}")
    return _same_dtype(op, operands), (*first[:axis], sum(o.shape[axis] for o in operands), *first[axis + 1 :])


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


def _transpose(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    (x,) = _operands(op, operands, 1)
    perm = _ints(op, attrs, "perm", len(x.shape))
    if sorted(perm) != list(range(len(x.shape))):
        raise WorkloadError(f"transpose: perm {perm} is no permutation of the axes of {x.shape}")
    return x.dtype, tuple(x.shape[axis] for axis in perm)


def _reshape(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    (x,) = _operands(op, operands, 1)
    shape = _ints(op, attrs, "shape")
    if Value("", x.dtype, shape).size != x.size or min(shape, default=0) < 0:
        raise WorkloadError(f"reshape: {x.shape} does not have as many elements as {shape}")
    return x.dtype, shape


def _pad(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    (x,) = _operands(op, operands, 1)
    rank = len(x.shape)
    pads = _ints(op, attrs, "pads", 2 * rank)
    if min(pads, default=0) < 0:
        raise WorkloadError(f"pad: pads {pads} must not be negative (crop with slice)")
    return x.dtype, tuple(extent + pads[axis] + pads[axis + rank] for axis, extent in enumerate(x.shape))


def _slice(op: str, operands: Sequence[Value], attrs: AttrMap) -> Typed:
    (x,) = _operands(op, operands, 1)
    rank = len(x.shape)
    begin, size, step = (_ints(op, attrs, name, rank) for name in ("begin", "size", "step"))
    for d, extent in enumerate(x.shape):
        last = begin[d] + (size[d] - 1) * step[d]
        if size[d] < 0 or step[d] == 0 or (size[d] and not (0 <= begin[d] < extent and 0 <= last < extent)):
            raise WorkloadError(f"slice: begin={begin} size={size} step={step} leaves a tensor of shape {x.shape}")
    return x.dtype, size


_RULES: dict[str, Rule] = {
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys((*UNARY, "layout"), _unary),
    "where": _where,
    "cast": _cast,
    "conv2d": _conv2d,
    "matmul": _matmul,
    **dict.fromkeys(POOLS, _pool),
    **dict.fromkeys(("softmax", "cumsum"), _same_along_axis),
    "lrn": _lrn,
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("argmax", "argmin"), _argreduce),
    "concat": _concat,
    "transpose": _transpose,
    "reshape": _reshape,
    "pad": _pad,
    "slice": _slice,
}
