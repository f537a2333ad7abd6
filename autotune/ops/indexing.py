"""Operators that pick elements by position: run-time indices, masks of triangles, reversed sequences.

Indices that a model gives at run time may say anything: negative ones count from the end, others are clamped to the
tensor, so that no memory outside of it is ever touched; `any_outside` tells that there were such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import axis_of, flag, integer, integers, numeric, require
from autotune.ops.registry import Needed, operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Table, binary, cast, const, maximum, minimum, read, select
from autotune.tensor.stage import Tensor, compute, max_, reduce_axis


def position(raw: Expr, extent: int) -> Expr:
    """A run-time index as a position inside of `extent` elements."""
    wide = cast(DType.i64, raw)
    return minimum(maximum(select(wide < 0, wide + extent, wide), 0), extent - 1)


def index_dtype(op: str, t: Tensor) -> None:
    """Raise WorkloadError unless `t` holds indices."""
    require(t.dtype in (DType.i32, DType.i64), f"{op}: indices must be i32 or i64, got {t.dtype}")


@operator("gather", operands="data indices", traits="moves", axis=0)
def gather(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Slices of data along an axis at run-time indices."""
    x, indices = inputs
    index_dtype("gather", indices)
    axis = axis_of("gather", integer("gather", attrs, "axis"), len(x.shape))
    extent, rank = x.shape[axis], len(indices.shape)
    require(extent > 0 or 0 in indices.shape, f"gather: axis {axis} of data is empty")

    def body(*i: Expr) -> Expr:
        chosen = position(indices[tuple(i[axis : axis + rank])], extent)
        return x[(*i[:axis], chosen, *i[axis + rank :])]

    return compute((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), body, "gather")


@operator("lookup", operands="data table", weights="table")
def lookup(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """A function of bytes (u8) as a table of its 256 values."""
    x, table = inputs
    require(x.dtype is DType.u8, f"lookup: data must be u8, got {x.dtype}")
    require(table.shape == (256,), f"lookup: the table must have 256 entries, not the shape {table.shape}")
    return compute(x.shape, lambda *i: table[cast(DType.i64, x[i])], "lookup")


@operator("gather_elements", operands="data indices", axis=0)
def gather_elements(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The element of data at the result's own place, but at the index found there along one axis."""
    x, indices = inputs
    index_dtype("gather_elements", indices)
    axis = axis_of("gather_elements", integer("gather_elements", attrs, "axis"), len(x.shape))
    inside_of("gather_elements", indices, x, axis)

    def body(*i: Expr) -> Expr:
        chosen = position(indices[i], x.shape[axis])
        return x[tuple(chosen if d == axis else e for d, e in enumerate(i))]

    return compute(indices.shape, body, "gather_elements")


def inside_of(op: str, indices: Tensor, x: Tensor, axis: int) -> None:
    """Raise WorkloadError unless indices of one axis fit into `x` along the others."""
    fits = len(indices.shape) == len(x.shape) and all(
        n <= extent or d == axis for d, (n, extent) in enumerate(zip(indices.shape, x.shape, strict=True))
    )
    require(fits, f"{op}: indices of shape {indices.shape} do not fit into data of shape {x.shape} but for axis {axis}")
    require(x.shape[axis] > 0 or 0 in indices.shape, f"{op}: axis {axis} of data is empty")


@operator("gather_nd", operands="data indices", batch_dims=0)
def gather_nd(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Slices of data at tuples of indices, which the last dimension of `indices` holds; leading ones may be batches."""
    x, indices = inputs
    index_dtype("gather_nd", indices)
    batch = integer("gather_nd", attrs, "batch_dims", 0)
    require(len(indices.shape) > batch, f"gather_nd: indices of shape {indices.shape} have no tuples")
    depth = indices.shape[-1]
    same = x.shape[:batch] == indices.shape[:batch] and batch + depth <= len(x.shape)
    require(same, f"gather_nd: indices of shape {indices.shape} do not fit data of shape {x.shape}, batch_dims={batch}")
    lead, chosen_from = indices.shape[:-1], x.shape[batch : batch + depth]
    require(0 not in chosen_from or 0 in lead, f"gather_nd: data of shape {x.shape} has nothing to choose from")

    def body(*i: Expr) -> Expr:
        tuples, rest = i[: len(lead)], i[len(lead) :]
        at = [position(indices[(*tuples, n)], extent) for n, extent in enumerate(chosen_from)]
        return x[(*i[:batch], *at, *rest)]

    return compute((*lead, *x.shape[batch + depth :]), body, "gather_nd")


@operator("any_outside", operands="indices", low=Needed.integers, high=Needed.integers)
def any_outside(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """i32 scalar: 1 if an index is below `low` or not below `high`, else 0; bounds of all, or one of each column."""
    (indices,) = inputs
    index_dtype("any_outside", indices)
    given = attrs["low"]
    columns = len(given) if isinstance(given, Sequence) else 1
    low, high = (integers("any_outside", attrs, name, columns) for name in ("low", "high"))
    fits = columns == 1 or indices.shape[-1:] == (columns,)
    require(fits and 0 not in indices.shape, f"any_outside: {columns} bounds for indices of shape {indices.shape}")
    axes = [reduce_axis(n, f"r{d}") for d, n in enumerate(indices.shape)]

    def bound(values: Sequence[int]) -> Expr:
        if columns == 1:
            return const(values[0], DType.i64)
        return Table("bounds", tuple(map(float, values)), (columns,), (axes[-1].var,), DType.i64)

    at = cast(DType.i64, indices[tuple(axis.var for axis in axes)])
    outside = select((at < bound(low)) | (at >= bound(high)), const(1, DType.i32), 0)
    return compute((), lambda: max_(outside, axes) if axes else outside, "any_outside")


@operator("one_hot", operands="indices values", axis=-1, depth=1)
def one_hot(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """values[1] where the new axis is at the index, values[0] elsewhere, and everywhere for an index out of range."""
    indices, values = inputs
    numeric("one_hot", indices)
    require(values.shape == (2,), f"one_hot: values must be [off, on], got shape {values.shape}")
    rank, depth = len(indices.shape) + 1, integer("one_hot", attrs, "depth", 0)
    axis = axis_of("one_hot", integer("one_hot", attrs, "axis"), rank)

    def body(*i: Expr) -> Expr:
        wide = cast(DType.i64, indices[(*i[:axis], *i[axis + 1 :])])
        at = select(wide < 0, wide + depth, wide)
        return select(binary("eq", at, i[axis]), values[1], values[0])

    return compute((*indices.shape[:axis], depth, *indices.shape[axis:]), body, "one_hot")


@operator("trilu", upper=True, k=0)
def trilu(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The upper or lower triangle of matrices, from diagonal k on; zero elsewhere."""
    (x,) = inputs
    require(len(x.shape) >= 2, f"trilu: needs matrices, got shape {x.shape}")
    upper, k = flag("trilu", attrs, "upper"), integer("trilu", attrs, "k")

    def body(*i: Expr) -> Expr:
        row, column = i[-2:]
        return read(x, i, when=column >= row + k if upper else column <= row + k, otherwise=const(0, x.dtype).value)

    return compute(x.shape, body, "trilu")


@operator("reverse_sequence", operands="data lengths", batch_axis=1, time_axis=0)
def reverse_sequence(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The first lengths[b] steps of each sequence b in reverse order, the rest as it is."""
    x, lengths = inputs
    index_dtype("reverse_sequence", lengths)
    batch, time = (
        axis_of("reverse_sequence", integer("reverse_sequence", attrs, a), len(x.shape))
        for a in ("batch_axis", "time_axis")
    )
    require(batch != time, f"reverse_sequence: batch_axis and time_axis are both {batch}")
    fits = lengths.shape == (x.shape[batch],)
    require(fits, f"reverse_sequence: lengths of shape {lengths.shape} for {x.shape[batch]} sequences")

    def body(*i: Expr) -> Expr:
        step, length = i[time], cast(DType.i64, lengths[i[batch]])
        source = position(select(step < length, length - 1 - step, step), x.shape[time])
        return x[tuple(source if d == time else e for d, e in enumerate(i))]

    return compute(x.shape, body, "reverse_sequence")
