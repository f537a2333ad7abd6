"""The values of a kernel's operands, from those of its workload."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from autotune.core import LINE
from autotune.lower.ir import Operand
from autotune.tensor.dtype import DType
from autotune.tensor.evaluate import evaluate, evaluate_parts
from autotune.tensor.expr import Binary, Cast, Read, Table, walk
from autotune.tensor.layout import Array, Layout

PART = 1 << 19
"""Elements computed and packed at a time: weights may fill half the memory, so no copies beside them."""
TURNED = 1 << 16
"""Elements whose order changes at a time: they and what they become fit a second-level cache."""
MANY = 64
"""Rows far apart, a line of each of which a first-level cache holds: of more, lines would be read again and again."""
MANY_PAGES, PAGE = 16, 4096
"""Rows whole pages apart of which that is so: a cache finds lines by their place in a page, and has few of each."""


def fill_operand(operand: Operand, inputs: Mapping[str, Array], memory: Array) -> None:
    """Write an input operand as it lies in memory: padding and halo zero.

    Args:
        operand: an input operand.
        inputs: the workload's inputs by name (in0, in1, ...).
        memory: u8, `operand.bytes` long.
    """
    layout = operand.layout
    physical = memory.view(operand.dtype.numpy).reshape(layout.physical_shape(operand.shape))
    dimension = _longest(operand)
    if dimension is None:
        layout.pack_into(physical, _whole(operand, inputs))
    elif operand.prepared is None:
        _pack(physical, inputs[operand.name], layout, dimension)
    else:
        step = _step(layout, operand.shape, dimension, PART)
        for n, part in enumerate(_parts(operand, inputs, dimension, step)):
            _pack(_place(physical, layout, dimension, n * step, step), part, layout, dimension)


def _pack(physical: Array, array: Array, layout: Layout, dimension: int) -> None:
    """Some indices of a dimension at a time."""
    turned = _turned(array, layout)
    if turned is None:
        step = _step(layout, array.shape, dimension, PART)
        for start in range(0, array.shape[dimension], step):
            part = array[(slice(None),) * dimension + (slice(start, start + step),)]
            layout.pack_into(_place(physical, layout, dimension, start, step), part)
        return
    outer = max(_cut(layout, array.shape), key=lambda d: abs(array.strides[d]))
    rows = _step(layout, array.shape, outer, TURNED)
    for start in range(0, array.shape[outer], rows):
        some = array[(slice(None),) * outer + (slice(start, start + rows),)]
        place = _place(physical, layout, outer, start, rows)
        step = rows if dimension == outer else _step(layout, some.shape, dimension, TURNED)
        for first in range(0, some.shape[dimension], step):
            part = some[(slice(None),) * dimension + (slice(first, first + step),)]
            layout.pack_into(_place(place, layout, dimension, first, step), _apart(part, turned, physical.dtype))


def _turned(array: Array, layout: Layout) -> int | None:
    """The dimension whose neighbours lie next to each other in memory though in the array they are rows so many, or so
    far apart, that a first-level cache does not hold a line of each; None where it does."""
    long = [d for d, extent in enumerate(array.shape) if extent > 1]
    near = min(long, key=lambda d: abs(array.strides[d]), default=None)
    others = [d for d, _ in layout.order if d != near]
    if not others or layout.block(others[-1]) <= _held(array.strides[others[-1]]):
        return None
    return others[-1]


def _held(stride: int) -> int:
    """Of how many rows so many bytes apart a first-level cache holds a line each."""
    return min(MANY, MANY_PAGES * PAGE // math.gcd(stride, PAGE))


def _apart(part: Array, rows: int, dtype: np.dtype[Any]) -> Array:
    """A copy, with elements of that type, in which the rows, indices of a dimension, are compact and an odd number of
    lines apart: a cache has room for a line of each."""
    order = [rows, *sorted(set(range(part.ndim)) - {rows}, key=lambda d: -abs(part.strides[d]))]
    shape = [part.shape[d] for d in order]
    row, in_line = math.prod(shape[1:]), LINE // dtype.itemsize
    memory = np.empty((shape[0], (-(-row // in_line) | 1) * in_line), dtype)
    copied = memory[:, :row].reshape(shape).transpose(np.argsort(order))
    copied[...] = part
    return copied


def _step(layout: Layout, shape: tuple[int, ...], dimension: int, most: int) -> int:
    """Indices of a dimension that are whole blocks of so many elements, about."""
    block = layout.block(dimension)
    return block * max(1, most * -(-shape[dimension] // block) // layout.elements(shape))


def _place(physical: Array, layout: Layout, dimension: int, start: int, count: int) -> Array:
    """Where indices of a dimension lie, from the first of a block on."""
    axis, block = layout.order.index((dimension, 0)), layout.block(dimension)
    return physical[(slice(None),) * axis + (slice(start // block, (start + count) // block),)]


def _cut(layout: Layout, shape: tuple[int, ...]) -> list[int]:
    """The dimensions that consist of blocks, without a halo."""
    return [d for d, halo in enumerate(layout.halo) if halo == (0, 0) and shape[d]]


def _longest(operand: Operand) -> int | None:
    """The dimension with the most blocks, none where every one has a halo or there are no elements."""
    layout, shape = operand.layout, operand.shape
    if not layout.elements(shape):
        return None
    return max(_cut(layout, shape), key=lambda d: -(-shape[d] // layout.block(d)), default=None)


# What is prepared from constants is computed in float64 and rounded once; in its own type where that is the same.


def _whole(operand: Operand, inputs: Mapping[str, Array]) -> Array:
    """The logical operand."""
    if operand.prepared is None:
        return inputs[operand.name]
    (value,) = evaluate(operand.prepared, _needed(operand, inputs), _precision(operand)).values()
    return value.astype(operand.dtype.numpy)


def _parts(operand: Operand, inputs: Mapping[str, Array], dimension: int, extent: int) -> Iterator[Array]:
    """The prepared operand, `extent` indices of one dimension at a time."""
    assert operand.prepared is not None
    for part in evaluate_parts(operand.prepared, _needed(operand, inputs), _precision(operand), dimension, extent):
        yield part if operand.dtype.is_float else part.astype(operand.dtype.numpy)


def _needed(operand: Operand, inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {t.name: inputs[t.name] for t in operand.prepared.inputs} if operand.prepared is not None else {}


def _precision(operand: Operand) -> DType | None:
    own = not operand.dtype.is_float or _rounds_once(operand) or _rounds_by_itself(operand)
    return None if own else DType.f64


def _rounds_by_itself(operand: Operand) -> bool:
    """Whether the definition says what rounding leaves, and so when to round."""
    assert operand.prepared is not None
    bodies = [body for stage in operand.prepared.stages for body in stage.body]
    casts = [e for body in bodies for e in walk(body) if isinstance(e, Cast) and isinstance(e.a, Cast)]
    return any(e.dtype.is_float and e.a.dtype.is_float and e.dtype.bytes > e.a.dtype.bytes for e in casts)


def _rounds_once(operand: Operand) -> bool:
    """Whether elements are of f32 and sums of no more than two of the weight's, each as it is or negated."""
    assert operand.prepared is not None
    if len(operand.prepared.stages) != 1:
        return False
    (stage,) = operand.prepared.stages
    if stage.reducer is None or stage.reducer.name != "sum" or operand.dtype is not DType.f32:
        return False
    factor, element = (stage.body[0].a, stage.body[0].b) if isinstance(stage.body[0], Binary) else (None, None)
    if not isinstance(factor, Table) or not isinstance(element, Read) or element.dtype is not DType.f32:
        return False
    along = factor.shape[-1]
    rows = [factor.values[start : start + along] for start in range(0, len(factor.values), along)]
    every = math.prod(axis.extent for axis in stage.reduce_axes) == along
    return every and all({abs(v) for v in row} <= {0.0, 1.0} and sum(map(abs, row)) <= 2 for row in rows)
