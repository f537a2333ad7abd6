"""Sums of products through BLAS: convolutions, matrix products and their kin as views and batched `matmul`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from autotune.tensor.expr import Binary, Cast, Const, Expr, Lookup, Read, Table, Var, walk
from autotune.tensor.interpret import Array, Box, Interpreter
from autotune.tensor.reducer import is_builtin
from autotune.tensor.stage import Stage

BLOCK = 1 << 22  # elements of one operand that are held at once
EXACT = 2.0**53  # integers below are exact in float64
ALONE = 1 << 18
"""Multiply-adds that a BLAS does on the thread that asks: OpenBLAS deals larger products to threads of its own, which
spin while they wait, and weights are computed on all cores already."""
LONG = 256
"""Columns for which it is worth to ask a BLAS."""


def factors(stage: Stage) -> tuple[Expr, Expr] | None:
    """The two factors of a stage that is a plain sum of products, None when it is anything else."""
    if stage.reducer is None or stage.reducer.name != "sum" or not is_builtin(stage.reducer):
        return None
    parts = list(_product(stage.body[0]))
    if not all(_is_leaf(p) for p in parts):
        return None
    reads = [p for p in parts if not isinstance(p, Const)]
    if len(reads) < 2:
        return None
    # Everything but the largest factor is multiplied out first: small tables, masks and constants.
    reads.sort(key=lambda p: _span(p, stage))
    rest: Expr = reads[0]
    for p in [*reads[1:-1], *(p for p in parts if isinstance(p, Const))]:
        rest = Binary("mul", rest, p, p.dtype)
    return rest, reads[-1]


def contract(interpreter: Interpreter, stage: Stage, pair: tuple[Expr, Expr], box: Box, over: Box) -> Array:
    """The sum over the box `over` of the product of `pair`, for every point of `box`."""
    whole = box + over
    used = [_axes(p) for p in pair]
    extents = dict(zip(whole.names, whole.extents, strict=True))
    sizes = [math.prod(extents[n] for n in u) for u in used]
    largest = sizes.index(max(sizes))
    if sizes[largest] > BLOCK:
        kept = [n for n in box.names if n in used[largest] and extents[n] > 1]
        name = max(kept or [n for n in over.names if n in used[largest]], key=lambda n: extents[n])
        half = extents[name] // 2
        pieces = [(0, half), (half, extents[name] - half)]
        if name in box.names:
            d = box.names.index(name)
            parts = [contract(interpreter, stage, pair, box.part(d, *p), over) for p in pieces]
            return np.concatenate(parts, axis=d)
        d = over.names.index(name)
        first, second = (contract(interpreter, stage, pair, box, over.part(d, *p)) for p in pieces)
        return np.asarray(first + second)
    a, b = (interpreter.value(p, whole) for p in pair)
    a, b = (v.reshape((1,) * len(whole.names)) if v.ndim == 0 else v for v in (a, b))
    dtype = stage.body[0].dtype
    if dtype.is_float or math.prod(over.extents) * _magnitude(a) * _magnitude(b) >= EXACT:
        return _matmul(a, b, box, over)
    exact = _matmul(a.astype(np.float64), b.astype(np.float64), box, over)
    return exact.astype(np.int64).astype(interpreter.number(dtype))


def _matmul(a: Array, b: Array, box: Box, over: Box) -> Array:
    """Arrays over box + over, with extent 1 where they are constant, as one batched matrix product."""
    spatial, reduced = range(len(box.names)), range(len(box.names), a.ndim)
    copies = 1
    for d in reduced:  # an axis that one side lacks is summed in the other; one that both lack only counts
        extent = over.extents[d - len(box.names)]
        if a.shape[d] == 1 and b.shape[d] == 1:
            copies *= extent
        elif a.shape[d] == 1:
            b = b.sum(axis=d, keepdims=True, dtype=b.dtype)
        elif b.shape[d] == 1:
            a = a.sum(axis=d, keepdims=True, dtype=a.dtype)
    batch = [d for d in spatial if a.shape[d] == b.shape[d]]
    rows = [d for d in spatial if d not in batch and b.shape[d] == 1]
    columns = [d for d in spatial if d not in batch and a.shape[d] == 1]

    def size(dims: list[int], array: Array) -> int:
        return math.prod(array.shape[d] for d in dims)

    inner = size(list(reduced), a)
    if not rows and not columns:  # each point has its own two vectors: there is no matrix
        every = list(range(a.ndim))
        dots = np.einsum(a, every, b, every, list(spatial))
        return np.broadcast_to(dots * np.asarray(copies, dots.dtype), box.extents)
    left = a.transpose(*batch, *rows, *reduced, *columns).reshape(size(batch, a), size(rows, a), inner)
    right = b.transpose(*batch, *reduced, *columns, *rows).reshape(size(batch, a), inner, size(columns, b))
    order = batch + rows + columns
    product = _multiplied(left, right).reshape([max(a.shape[d], b.shape[d]) for d in order])
    found = product.transpose(np.argsort(order)) if order else product
    return np.broadcast_to(found if copies == 1 else found * np.asarray(copies, found.dtype), box.extents)


def _multiplied(left: Array, right: Array) -> Array:
    """`np.matmul` of stacks of matrices; some columns at a time where a small one is on the left, as in transforms of
    weights: they stay in a cache, too."""
    (count, rows, inner), columns = left.shape, right.shape[2]
    some = ALONE // max(rows * inner, 1)
    if count != 1 or not LONG <= some < columns:
        return np.asarray(np.matmul(left, right))
    found = np.empty((1, rows, columns), np.result_type(left, right))
    for start in range(0, columns, some):
        part = slice(start, start + some)
        np.matmul(left[0], right[0, :, part], out=found[0, :, part])
    return found


def _product(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Binary) and e.op == "mul":
        yield from _product(e.a)
        yield from _product(e.b)
    else:
        yield e


def _is_leaf(e: Expr) -> bool:
    return isinstance(e.a, Read) if isinstance(e, Cast) else isinstance(e, (Read, Table, Const, Lookup))


def _axes(e: Expr) -> frozenset[str]:
    return frozenset(v.name for v in walk(e) if isinstance(v, Var))


def _span(e: Expr, stage: Stage) -> int:
    used = _axes(e)
    return math.prod(a.extent for a in stage.all_axes if a.name in used)


def _magnitude(a: Array) -> float:
    return max(abs(float(a.max())), abs(float(a.min()))) if a.size else 0.0
