"""Operators that only move elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.broadcast import broadcast_shapes, element
from autotune.ops.checks import axis_of, integer, integers, number, require, same_dtype
from autotune.ops.registry import Needed, operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, const, read, select
from autotune.tensor.stage import Tensor, compute

MAX_CHAIN = 64  # parts that are asked for one after the other


@operator("concat", operands="data*", traits="moves view", axis=1)
def concat(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The tensors one after the other along an axis."""
    dtype = same_dtype("concat", inputs)
    first = inputs[0].shape
    axis = axis_of("concat", integer("concat", attrs, "axis"), len(first))
    for t in inputs[1:]:
        same = len(t.shape) == len(first) and all(
            d == axis or a == b for d, (a, b) in enumerate(zip(t.shape, first, strict=True))
        )
        require(same, f"concat: shapes {first} and {t.shape} differ outside of axis {axis}")
    parts = [t for t in inputs if t.shape[axis]] or inputs[:1]
    ends = [sum(t.shape[axis] for t in parts[: n + 1]) for n in range(len(parts))]

    def chosen(i: Sequence[Expr], first: int, last: int) -> Expr:
        """The element at i, which is in one of the parts first..last-1."""
        if last - first > MAX_CHAIN:  # halves, so that the depth stays small
            middle = (first + last) // 2
            return select(i[axis] < ends[middle - 1], chosen(i, first, middle), chosen(i, middle, last))
        value: Expr | None = None
        for n in reversed(range(first, last)):
            start = ends[n - 1] if n else 0
            inside = [i[axis] >= start] if n else []
            inside += [i[axis] < ends[n]] if n + 1 < len(parts) else []
            when = inside[0] & inside[1] if len(inside) == 2 else inside[0] if inside else None
            own = tuple(e - start if d == axis and n else e for d, e in enumerate(i))
            here = read(parts[n], own, when=when, otherwise=const(0, dtype).value)
            value = here if value is None else select(i[axis] < ends[n], here, value)
        assert value is not None  # there is at least one operand
        return value

    shape = tuple(ends[-1] if d == axis else e for d, e in enumerate(first))
    return compute(shape, lambda *i: chosen(i, 0, len(parts)), "concat")


@operator("transpose", traits="moves absorbed", perm=Needed.integers)
def transpose(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Dimension d of the result is dimension perm[d] of x."""
    (x,) = inputs
    perm = integers("transpose", attrs, "perm", len(x.shape))
    rank = len(x.shape)
    require(sorted(perm) == list(range(rank)), f"transpose: perm={perm} is no permutation of {rank} axes")
    back = [perm.index(d) for d in range(len(perm))]
    return compute(tuple(x.shape[p] for p in perm), lambda *i: x[tuple(i[b] for b in back)], "transpose")


@operator("reshape", traits="moves view", shape=Needed.integers)
def reshape(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The same elements in the same order under another shape."""
    (x,) = inputs
    shape = integers("reshape", attrs, "shape", None, 0)
    same = math.prod(shape) == math.prod(x.shape)
    require(same, f"reshape: shape {x.shape} has {math.prod(x.shape)} elements, {shape} has {math.prod(shape)}")
    return compute(shape, lambda *i: x[reshape_index(i, shape, x.shape)], "reshape")


def reshape_index(index: Sequence[Expr], shape: Sequence[int], source: Sequence[int]) -> tuple[Expr, ...]:
    """Where the element at `index` of `shape` lies in `source`, which has as many elements.

    Dimensions are matched in groups of equal size, so that those that stay keep their plain index.
    """
    if math.prod(shape) == 0:
        return tuple(const(0, DType.i64) for _ in source)
    out: list[Expr] = []
    a = b = 0
    while a < len(shape) or b < len(source):
        start_a, start_b = a, b
        size_a = size_b = 1
        while a == start_a or b == start_b or size_a != size_b:
            if (size_a <= size_b and a < len(shape)) or b == len(source):
                if a == len(shape):
                    break
                size_a *= shape[a]
                a += 1
            else:
                size_b *= source[b]
                b += 1
        out += _regroup(index[start_a:a], shape[start_a:a], source[start_b:b])
    return tuple(out)


def _regroup(index: Sequence[Expr], shape: Sequence[int], source: Sequence[int]) -> list[Expr]:
    """Indices of `source` from `index` into `shape`: through the flat position."""
    flat: Expr = const(0, DType.i64)
    stride = 1
    first = True
    for i, extent in zip(reversed(index), reversed(shape), strict=True):
        if extent > 1:
            term = i * stride if stride > 1 else i
            flat, first = (term, False) if first else (term + flat, False)
        stride *= extent
    found: list[Expr] = []
    rest = stride
    for extent in source:
        outer, rest = rest, rest // extent
        if extent == 1:
            found.append(const(0, DType.i64))
            continue
        part = flat // rest if rest > 1 else flat
        found.append(part % extent if outer < stride else part)
    return found


@operator("pad", traits="moves absorbed", pads=Needed.integers, value=0.0)
def pad(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """A border of a constant; pads = (begin of each axis..., end of each axis...), negative ones crop."""
    (x,) = inputs
    rank = len(x.shape)
    pads = integers("pad", attrs, "pads", 2 * rank)
    exact = x.dtype.is_int and isinstance(attrs["value"], int)  # f64 does not hold every i64
    value = integer("pad", attrs, "value") if exact else number("pad", attrs, "value")
    require(x.dtype.is_float or value == int(value if math.isfinite(value) else 0),
            f"pad: value={value} is no {x.dtype}")  # fmt: skip
    shape = tuple(pads[d] + n + pads[d + rank] for d, n in enumerate(x.shape))
    require(min(shape, default=0) >= 0, f"pad: pads={pads} remove more than there is of shape {x.shape}")

    def body(*i: Expr) -> Expr:
        at = [e - pads[d] if pads[d] else e for d, e in enumerate(i)]
        when: Expr | None = None
        for d, extent in enumerate(x.shape):
            for needed, condition in ((pads[d] > 0, at[d] >= 0), (pads[d + rank] > 0, at[d] < extent)):
                if needed:
                    when = condition if when is None else when & condition
        return read(x, tuple(at), when=when, otherwise=value)

    return compute(shape, body, "pad")


@operator("slice", traits="moves absorbed", begin=Needed.integers, size=Needed.integers, step=Needed.integers)
def slice_(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """`size` elements from `begin` on, every `step`-th; one entry per axis, steps may be negative."""
    (x,) = inputs
    rank = len(x.shape)
    begin, size, step = (integers("slice", attrs, a, rank) for a in ("begin", "size", "step"))
    for d, extent in enumerate(x.shape):
        last = begin[d] + (size[d] - 1) * step[d]
        ok = size[d] >= 0 and step[d] != 0 and (size[d] == 0 or (0 <= begin[d] < extent and 0 <= last < extent))
        require(ok, f"slice: {size[d]} elements from {begin[d]} by {step[d]} leave axis {d} of extent {extent}")

    def at(d: int, i: Expr) -> Expr:
        scaled = i if step[d] == 1 else i * step[d]
        return scaled + begin[d] if begin[d] else scaled

    return compute(size, lambda *i: x[tuple(at(d, e) for d, e in enumerate(i))], "slice")


@operator("expand", traits="moves absorbed", shape=Needed.integers)
def expand(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The tensor repeated along dimensions of extent 1, as NumPy broadcasts it; `shape` is the result's."""
    (x,) = inputs
    shape = integers("expand", attrs, "shape", None, 0)
    require(broadcast_shapes("expand", (x.shape, shape)) == shape, f"expand: {x.shape} does not broadcast to {shape}")
    return compute(shape, lambda *i: element(x, i, shape), "expand")
