"""NonZero, Unique, Compress: how many elements they give depends on the data."""

from __future__ import annotations

import numpy as np

from autotune.errors import InputError, ModelError
from autotune.graph.host.node import HostNode, on_host
from autotune.graph.ir import Array


@on_host("NonZero")
def nonzero(node: HostNode) -> tuple[Array]:
    """Indices, i64 [rank, count], in row-major order; a scalar gives [0, count]."""
    x = node.array(0)
    if not x.ndim:
        return (np.empty((0, int(x != 0)), np.int64),)
    found = (x if x.dtype.kind in "biu" else x != 0).nonzero()
    indices = np.empty((x.ndim, len(found[0])), np.int64)
    for row, along in zip(indices, found):
        row[:] = along
    return (indices,)


@on_host("Unique")
def unique(node: HostNode) -> tuple[Array, ...]:
    """Distinct elements, or slices along `axis`; where each is first, which one each is, and how often each occurs."""
    x = node.array(0)
    if node.has("axis"):
        axis = _axis(node, node.attr_int("axis", 0), x.ndim)
    else:
        x, axis = x.reshape(-1), 0
    slices = np.moveaxis(x, axis, 0)
    numbers = slices.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else slices
    if not x.size:  # NumPy does not sort slices of nothing: all are equal
        first = np.zeros(min(1, len(slices)), np.int64)
        inverse, counts = np.zeros(len(slices), np.int64), np.full(len(first), len(slices), np.int64)
    else:
        _, first, inverse, counts = np.unique(
            numbers, return_index=True, return_inverse=True, return_counts=True, axis=0 if x.ndim > 1 else None
        )
    inverse = inverse.reshape(-1)
    if not node.attr_int("sorted", 1):
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first, counts, inverse = first[order], counts[order], rank[inverse]
    result = np.moveaxis(slices[first], 0, axis)
    return (result, *(found.astype(np.int64) for found in (first, inverse, counts)))


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


def _axis(node: HostNode, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"{node.label}: axis {axis} is outside a tensor of rank {rank}")
    return axis % rank
