"""Values of the extern functions that write elements at run-time positions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.tensor.externs import Array, extern_value

REDUCTIONS = ("none", "add", "mul", "max", "min")
"""How an update meets the element that is there; the attribute `reduction` is the position in this list."""

_UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@extern_value("scatter_elements")
def _scatter_elements(inputs: Sequence[Array], attrs: Mapping[str, int]) -> Sequence[Array]:
    """data with each update put at its own place but for one axis of the row, where the index says."""
    data, indices, updates = inputs
    axis = attrs["axis"] - attrs["rank"] + data.ndim
    places: list[Array] = list(np.indices(indices.shape, np.int64))
    places[axis] = indices.astype(np.int64)
    return [_written(data, places, updates, attrs["reduction"])]


@extern_value("scatter_nd")
def _scatter_nd(inputs: Sequence[Array], attrs: Mapping[str, int]) -> Sequence[Array]:
    """data with each slice of the updates put where the tuple of indices in the last dimension says."""
    data, indices, updates = inputs
    depth = indices.shape[-1]
    slices = data.shape[depth:]
    tuples = indices.reshape(math.prod(indices.shape[:-1]), depth).astype(np.int64)
    places = [np.moveaxis(tuples, 1, 0)[n].reshape(-1, *(1,) * len(slices)) for n in range(depth)]
    places += [np.expand_dims(g, 0) for g in np.indices(slices, np.int64)]
    whole = (len(tuples), *slices)
    spread = [np.broadcast_to(p, whole) for p in places]
    return [_written(data, spread, updates.reshape(whole), attrs["reduction"])]


def _written(data: Array, places: Sequence[Array], updates: Array, reduction: int) -> Array:
    """Updates in order: of several for one element the last one stays, or all are folded. Others are left out."""
    result = data.copy()
    inside = np.ones(updates.shape, np.bool_)
    wrapped = [np.where(p < 0, p + extent, p) for p, extent in zip(places, data.shape, strict=True)]
    for p, extent in zip(wrapped, data.shape, strict=True):
        inside &= (p >= 0) & (p < extent)
    at = tuple(p[inside] for p in wrapped)
    kind = REDUCTIONS[reduction]
    if kind == "none":
        result[at] = updates[inside]
    else:
        _UFUNCS[kind].at(result, at, updates[inside])
    return result


@extern_value("tensor_scatter")
def _tensor_scatter(inputs: Sequence[Array], attrs: Mapping[str, int]) -> Sequence[Array]:
    """The cache with each batch's rows of the update from its start on; those that are outside are left out."""
    cache, update, start = inputs
    axis = attrs["axis"]
    result = cache.copy()
    places = start.astype(np.int64)[:, None] + np.arange(update.shape[axis])
    if attrs["circular"]:
        places %= cache.shape[axis]
    for batch, row in zip(*np.nonzero((places >= 0) & (places < cache.shape[axis])), strict=True):
        other = (batch, *(slice(None),) * (axis - 1))
        result[(*other, places[batch, row])] = update[(*other, row)]
    return [result]
