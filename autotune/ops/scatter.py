"""Operators that write elements at run-time positions; negative ones count from the end, others are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import axis_of, integer, numeric, require, same_dtype, word
from autotune.ops.indexing import index_dtype, inside_of
from autotune.ops.registry import operator
from autotune.tensor.externs import Output, extern
from autotune.tensor.scatter import REDUCTIONS
from autotune.tensor.stage import Tensor


def _reduction(op: str, attrs: Mapping[str, Any], data: Tensor) -> int:
    reduction = word(op, attrs, "reduction", REDUCTIONS)
    if reduction != "none":
        numeric(op, data)
    return REDUCTIONS.index(reduction)


@operator("scatter_elements", operands="data indices updates", axis=0, reduction="none")
def scatter_elements(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Data with each update at its own place, but along one axis at its index. Duplicates are written in order."""
    x, indices, updates = inputs
    same_dtype("scatter_elements", (x, updates))
    index_dtype("scatter_elements", indices)
    axis = axis_of("scatter_elements", integer("scatter_elements", attrs, "axis"), len(x.shape))
    inside_of("scatter_elements", indices, x, axis)
    fits = indices.shape == updates.shape
    require(fits, f"scatter_elements: indices of shape {indices.shape}, updates of shape {updates.shape}")
    # Up to the axis, elements that are outside of each other's reach are rows of their own.
    rows = next((d for d in range(axis) if indices.shape[d] != x.shape[d]), axis)
    (out,) = extern(
        "scatter_elements", (x, indices, updates), x.shape[:rows],
        (Output("scatter_elements", x.shape[rows:], x.dtype),),
        axis=axis - rows, rank=len(x.shape) - rows, reduction=_reduction("scatter_elements", attrs, x),
    )  # fmt: skip
    return out


@operator("scatter_nd", operands="data indices updates", reduction="none")
def scatter_nd(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Data with slices written at tuples of indices, which the last dimension of `indices` holds, in order."""
    x, indices, updates = inputs
    same_dtype("scatter_nd", (x, updates))
    index_dtype("scatter_nd", indices)
    require(len(indices.shape) > 0, "scatter_nd: indices of shape () have no tuples")
    *lead, depth = indices.shape
    require(depth <= len(x.shape), f"scatter_nd: tuples of {depth} indices into data of shape {x.shape}")
    fits = updates.shape == (*lead, *x.shape[depth:])
    require(fits, f"scatter_nd: updates must have shape {(*lead, *x.shape[depth:])}, got {updates.shape}")
    (out,) = extern(
        "scatter_nd", (x, indices, updates), (), (Output("scatter_nd", x.shape, x.dtype),),
        reduction=_reduction("scatter_nd", attrs, x),
    )  # fmt: skip
    return out


@operator("tensor_scatter", operands="cache update start", traits="updates", axis=-2, mode="linear")
def tensor_scatter(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """A cache with `update` written along `axis` from start[b] on for each batch b; `circular` goes on at the front."""
    cache, update, start = inputs
    same_dtype("tensor_scatter", (cache, update))
    index_dtype("tensor_scatter", start)
    axis = axis_of("tensor_scatter", integer("tensor_scatter", attrs, "axis"), len(cache.shape))
    circular = word("tensor_scatter", attrs, "mode", ("linear", "circular")) == "circular"
    require(axis > 0, "tensor_scatter: axis 0 is the batch")
    inside_of("tensor_scatter", update, cache, axis)
    outside = all(n == m or d == axis for d, (n, m) in enumerate(zip(update.shape, cache.shape, strict=True)))
    fits = outside and update.shape[axis] <= cache.shape[axis] and start.shape == cache.shape[:1]
    require(fits, f"tensor_scatter: update {update.shape} and start {start.shape} do not fit the cache {cache.shape}")
    (out,) = extern(
        "tensor_scatter", (cache, update), cache.shape[:axis],
        (Output("tensor_scatter", cache.shape[axis:], cache.dtype),), shared=(start,),
        axis=axis, circular=circular,
    )  # fmt: skip
    return out
