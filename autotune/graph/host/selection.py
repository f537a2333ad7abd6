"""NonZero, Unique, Compress, and what a mask selects: how many elements they give depends on the data."""

from __future__ import annotations

import numpy as np

from autotune.errors import InputError, ModelError
from autotune.graph.host.node import OWN, HostNode, on_host
from autotune.graph.ir import Array


@on_host("NonZero")
def nonzero(node: HostNode) -> tuple[Array]:
    """Indices, i64 [rank, count], in row-major order; a scalar gives [0, count]."""
    x = node.array(0)
    return (np.stack(np.nonzero(x != 0)).astype(np.int64),) if x.ndim else scalar_nonzero(x)


def scalar_nonzero(x: Array) -> tuple[Array]:
    """There is no index, once or not at all."""
    return (np.empty((0, int(x != 0)), np.int64),)


@on_host("Unique")
def unique(node: HostNode) -> tuple[Array, ...]:
    """Distinct elements, or slices along `axis`; where each is first, which one each is, and how often each occurs."""
    x = node.array(0)
    if node.has("axis"):
        axis = _axis(node, node.attr_int("axis", 0), x.ndim)
    else:
        x, axis = x.reshape(-1), 0
    given = np.moveaxis(x, axis, 0)
    slices = _ranks(given) if x.dtype == object else given
    if slices.ndim == 1 and (sorted_keys := _sorted_keys(slices)) is not None:
        keys = sorted_keys >> 32
        first, inverse, counts = _runs(sorted_keys & (2**32 - 1), keys[1:] != keys[:-1])
    else:
        first, inverse, counts = _distinct(slices)
    if not node.attr_int("sorted", 1):
        first, inverse, counts = by_place(first, inverse, counts)
    result = np.moveaxis(given[first], 0, axis)
    return (result, *(found.astype(np.int64) for found in (first, inverse, counts)))


def _ranks(texts: Array) -> Array:
    """Strings as numbers (i64) that are in the same order, that of their characters' codes."""
    return np.unique(texts, return_inverse=True)[1].reshape(texts.shape).astype(np.int64)


def by_place(first: Array, inverse: Array, counts: Array) -> tuple[Array, Array, Array]:
    """What is found of distinct elements, i64, in the order in which they come."""
    order = first.argsort()
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse], counts[order]


def _distinct(slices: Array) -> tuple[Array, Array, Array]:
    """Where each distinct slice is first, which one each is, and how often each occurs."""
    numbers = slices.astype(np.float32) if slices.dtype.itemsize == 2 and slices.dtype.kind not in "iu" else slices
    if not slices.size:  # NumPy does not sort slices of nothing: all are equal
        first = np.zeros(min(1, len(slices)), np.int64)
        return first, np.zeros(len(slices), np.int64), np.full(len(first), len(slices), np.int64)
    if slices.ndim > 1 and slices.dtype.kind in "biu":
        rows = slices.reshape(len(slices), -1)
        order = np.argsort(_texts(rows), kind="stable")
        return _runs(order, (rows[order[1:]] != rows[order[:-1]]).any(axis=1))
    _, first, inverse, counts = np.unique(
        numbers, return_index=True, return_inverse=True, return_counts=True, axis=0 if slices.ndim > 1 else None
    )
    return first, inverse.reshape(-1), counts


def _sorted_keys(x: Array) -> Array | None:
    """i64, sorted: above, an integer that grows with the element, in the low 32 bits where it is; None if that is too
    little for the elements. One sort of numbers is several times as fast as one of positions."""
    if not 0 < len(x) < 2**32 or (x.dtype.itemsize == 8 and x.dtype.kind == "f"):
        return None
    if x.dtype.kind in "biu":
        low = int(x.min())
        if int(x.max()) - low >= 2**31:
            return None
        keys = (x - x.dtype.type(low) if x.dtype.kind == "u" else x.astype(np.int64) - low).astype(np.int64)
    else:
        floats = x.astype(np.float32) + np.float32(0)  # -0.0 becomes 0.0
        bits = floats.view(np.int32)
        last = np.int32(2**31 - 1)
        keys = np.where(np.isnan(floats), last, bits ^ (bits >> 31 & last)).astype(np.int64)
    keys <<= 32
    keys |= np.arange(len(x))
    keys.sort()
    return keys


def _texts(rows: Array) -> Array:
    """A string of bytes for each row of integers, in the same order: sorted many times as fast as rows of fields."""
    numbers = rows if rows.dtype == np.uint64 else rows.astype(np.int64).view(np.uint64) ^ np.uint64(2**63)
    return np.ascontiguousarray(numbers.astype(">u8")).view(f"S{8 * rows.shape[1]}").reshape(-1)


def _runs(places: Array, differ: Array) -> tuple[Array, Array, Array]:
    """What `_distinct` gives.

    Args:
        places: where the elements are, in their order, equal ones by place.
        differ: for each but the first, whether it differs from the one before.
    """
    begins = np.concatenate(([True], differ))
    (starts,) = begins.nonzero()
    inverse = np.empty(len(places), np.int64)
    inverse[places] = np.cumsum(begins) - 1
    return places[starts], inverse, np.diff(starts, append=len(places))


@on_host("Compress")
def compress(node: HostNode) -> tuple[Array]:
    """The slices along `axis`, or the elements, whose condition holds; what a short condition does not cover goes."""
    x, condition = node.array(0), node.array(1)
    if condition.ndim != 1 or condition.dtype != np.bool_:
        raise ModelError(
            f"{node.label}: the condition must be a vector of bool, not {condition.dtype}{condition.shape}"
        )
    if node.has("axis"):
        axis = _axis(node, node.attr_int("axis", 0), x.ndim)
    else:
        x, axis = x.reshape(-1), 0
    (kept,) = np.nonzero(condition)
    if kept.size and kept[-1] >= x.shape[axis]:
        raise InputError(f"{node.label}: the condition selects {kept[-1]} of an axis of extent {x.shape[axis]}")
    return (np.take(x, kept, axis),)


@on_host("MaskedSelect", domain=OWN)
def masked_select(node: HostNode) -> tuple[Array]:
    """GatherND of data at the places that NonZero finds in a mask: `x[mask]`, also where the mask is shorter.

    Raises:
        ModelError: the mask has more axes than the data. InputError: it is longer, and selects what is not there.
    """
    x, mask = node.array(0), node.array(1)
    if mask.ndim > x.ndim:
        raise ModelError(f"{node.label}: a mask of shape {mask.shape} for data of shape {x.shape}")
    if not mask.ndim:
        return (np.repeat(x[np.newaxis], int(mask != 0), axis=0),)
    try:
        return (x[np.nonzero(mask != 0)],)
    except IndexError as error:
        raise InputError(
            f"{node.label}: the mask, of shape {mask.shape}, selects what is not in data of shape {x.shape}"
        ) from error


def _axis(node: HostNode, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"{node.label}: axis {axis} is outside a tensor of rank {rank}")
    return axis % rank
