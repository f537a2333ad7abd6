"""Writing elements at run-time positions: a copy of the data, then the updates one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.lower.extern import Row, extern_nest, store, where
from autotune.lower.ir import Apart, Condition, Index, Stmt, Store
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Expr, Select, cast
from autotune.tensor.linear import Linear, clamp

_FOLDS = (None, "sum", "prod", "max", "min")


@extern_nest("scatter_elements")
def scatter_elements(row: Row) -> tuple[Stmt, ...]:
    data, indices, _ = row.inputs
    axis = row.attrs["axis"]
    extent = row.inner(data)[axis]

    def update(i: tuple[Linear, ...]) -> Stmt:
        inside, at = _position(row.load(1, i), extent)
        place = row.output(0, tuple(at if d == axis else e for d, e in enumerate(i)))
        return where((inside,), (Store((place,), (row.load(2, i),), _FOLDS[row.attrs["reduction"]]),))

    return (*_copy(row), *_in_order(row, row.inner(indices), update))


@extern_nest("scatter_nd")
def scatter_nd(row: Row) -> tuple[Stmt, ...]:
    data, indices, _ = row.inputs
    *lead, depth = row.inner(indices)
    extents = row.inner(data)

    def update(i: tuple[Linear, ...]) -> Stmt:
        found = [_position(row.load(1, (*i, Linear(n))), extents[n]) for n in range(depth)]
        inside: list[Condition] = [condition for condition, _ in found]
        at = tuple(place for _, place in found)

        def element(s: tuple[Linear, ...]) -> tuple[Stmt, ...]:
            value = row.load(2, (*i, *s))
            return (Store((row.output(0, (*at, *s)),), (value,), _FOLDS[row.attrs["reduction"]]),)

        return where(inside, row.each(extents[depth:], element))

    return (*_copy(row), *_in_order(row, lead, update))


@extern_nest("tensor_scatter")
def tensor_scatter(row: Row) -> tuple[Stmt, ...]:
    """Where the result is written over the cache, all that is not new is there already."""
    data, update, _ = row.inputs
    extent, *rest = row.inner(data)
    start = cast(DType.i64, row.load(2, (row.rows[0],)))

    def write(step: Linear) -> tuple[Stmt, ...]:
        raw = start + Index(step)
        inside, at = _place(raw % extent if row.attrs["circular"] else raw, extent)
        return (where((inside,), row.each(rest, lambda i: (store(row.output(0, (at, *i)), row.load(1, (step, *i))),))),)

    whole, result = row.load(0, (Linear(),) * (1 + len(rest))).buffer, row.output(0, (Linear(),) * (1 + len(rest)))[0]
    rows = row.inner(update)[0]
    written = (row.loop(rows, write),) if rows else ()
    return (where((Apart(whole, result),), _copy(row)), *written)


def _copy(row: Row) -> tuple[Stmt, ...]:
    return row.each(row.inner(row.inputs[0]), lambda i: (store(row.output(0, i), row.load(0, i)),))


def _in_order(row: Row, extents: Sequence[int], body: Callable[[tuple[Linear, ...]], Stmt]) -> tuple[Stmt, ...]:
    """One update after the other: later ones win."""
    if not extents:
        return (body(()),)
    return (row.loop(extents[0], lambda i: _in_order(row, extents[1:], lambda rest: body((i, *rest)))),)


def _position(raw: Expr, extent: int) -> tuple[Expr, Linear]:
    """(whether the index is inside, where it is then); negative ones count from the end."""
    wide = cast(DType.i64, raw)
    return _place(Select(wide < 0, wide + extent, wide, DType.i64), extent)


def _place(at: Expr, extent: int) -> tuple[Expr, Linear]:
    """(whether the position is inside, where it is then)"""
    inside = Binary("and", at >= 0, at < extent, DType.bool)
    return inside, Linear(0, {clamp(at, max(extent - 1, 0)): 1})
