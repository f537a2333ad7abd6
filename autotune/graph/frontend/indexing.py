"""Operators that pick or write elements by position: gather, scatter, one-hot, triangles, reversed sequences."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import MAX_BROADCAST_ELEMENTS, OnnxNode, contributed, converts
from autotune.graph.frontend.source import dtype_of
from autotune.graph.host.node import OWN
from autotune.tensor import DType


@converts("Gather")
def gather(node: OnnxNode) -> str:
    """Rows of data; one constant index is a slice, indices and data both constant are a constant."""
    axis = node.axis(node.attr_int("axis", 0), node.rank())
    extent = node.shape()[axis]
    _check_inside(node, extent, axis)
    if not node.is_constant(1):
        return node.emit("gather", node.input(0), node.input(1), axis=axis)
    indices = node.constant(1, "the indices").astype(np.int64)
    if node.is_constant(0):
        return node.new_constant(np.take(node.constant(0, "data"), indices, axis=axis))
    if indices.size != 1:
        return node.emit("gather", node.input(0), node.input(1), axis=axis)
    position = int(indices.reshape(())) % extent
    ranges = [range(e) for e in node.shape()]
    ranges[axis] = range(position, position + 1)
    return node.reshaped(
        node.sliced(node.input(0), ranges), (*node.shape()[:axis], *indices.shape, *node.shape()[axis + 1 :])
    )


def _check_inside(node: OnnxNode, extent: int, axis: int) -> None:
    """Refuse indices (input 1) that are out of range; negative ones count from the end."""
    node.must_lie(node.input(1), (-extent,), (extent,), f"an index into axis {axis}")


@converts("GatherElements")
def gather_elements(node: OnnxNode) -> str:
    axis = node.axis(node.attr_int("axis", 0), node.rank())
    _check_inside(node, node.shape()[axis], axis)
    return node.emit("gather_elements", node.input(0), node.input(1), axis=axis)


@converts("GatherND")
def gather_nd(node: OnnxNode) -> str:
    """Slices of data at tuples of indices; tuples of one are indices into the first axis."""
    batch = node.attr_int("batch_dims", 0)
    if batch < 0:
        raise ModelError(f"{node.label}: batch_dims={batch} is negative")
    return _gathered(node, batch)


@contributed("MaskedSelect", 2, domains=(OWN,))
def masked_select(node: OnnxNode) -> str:
    """Slices of data where a constant mask is not zero, see `autotune.graph.frontend.masked`."""
    places = node.new_constant(np.argwhere(node.constant(1, "the mask")).astype(np.int64))
    return _gathered(replace(node, inputs=(node.inputs[0], places)), 0)


def _gathered(node: OnnxNode, batch: int) -> str:
    """Slices of data at tuples of indices, behind the first `batch` axes of both."""
    _check_tuples(node, batch)
    if batch == 0 and node.shape(1)[-1:] == (1,):
        indices = node.reshaped(node.input(1), node.shape(1)[:-1])
        return node.emit("gather", node.input(0), indices, axis=0)
    return node.emit("gather_nd", node.input(0), node.input(1), batch_dims=batch)


def _check_tuples(node: OnnxNode, first: int) -> None:
    """Refuse tuples of indices (input 1) into the axes from `first` on that are out of range."""
    depth = node.shape(1)[-1] if node.rank(1) else 0
    extents = node.shape()[first : first + depth]
    if extents and len(extents) == depth:
        node.must_lie(node.input(1), tuple(-n for n in extents), extents, f"an index into data of shape {node.shape()}")


@converts("Scatter", "ScatterElements")
def scatter_elements(node: OnnxNode) -> str:
    axis = node.axis(node.attr_int("axis", 0), node.rank())
    _check_inside(node, node.shape()[axis], axis)
    reduction = node.attr_string("reduction", "none")
    return node.emit("scatter_elements", *node.all_inputs(), axis=axis, reduction=reduction)


@converts("ScatterND")
def scatter_nd(node: OnnxNode) -> str:
    _check_tuples(node, 0)
    return node.emit("scatter_nd", *node.all_inputs(), reduction=node.attr_string("reduction", "none"))


@converts("TensorScatter")
def tensor_scatter(node: OnnxNode) -> str:
    """Without write indices, every batch is written from the front."""
    axis = node.axis(node.attr_int("axis", -2), node.rank())
    start = node.input(2) if node.given(2) else node.new_constant(np.zeros(node.shape()[0], np.int64))
    mode, room = node.attr_string("mode", "linear"), node.shape()[axis]
    last = room - node.shape(1)[axis] if mode == "linear" and node.rank(1) == node.rank() else room - 1
    node.must_lie(start, (0,), (last + 1,), "a write index")
    return node.emit("tensor_scatter", node.input(0), node.input(1), start, axis=axis, mode=mode)


@converts("OneHot")
def one_hot(node: OnnxNode) -> str:
    depth = node.constant(1, "the depth").reshape(-1)
    if depth.size != 1 or not 0 <= float(depth[0]) <= MAX_BROADCAST_ELEMENTS:
        raise ModelError(f"{node.label}: impossible depth {depth.tolist()}")
    axis = node.axis(node.attr_int("axis", -1), node.rank() + 1)
    return node.emit("one_hot", node.input(0), node.input(2), axis=axis, depth=int(depth[0]))


@converts("Trilu")
def trilu(node: OnnxNode) -> str:
    k = node.constant_ints(1, "the diagonal") if node.given(1) else (0,)
    if len(k) != 1:
        raise ModelError(f"{node.label}: the diagonal must be one number")
    reach = sum(node.shape()[-2:])  # beyond all elements; keeps row + k from overflowing
    bounded = max(-reach, min(reach, k[0]))
    return node.emit("trilu", node.input(0), upper=node.attr_flag("upper", default=True), k=bounded)


@converts("ReverseSequence")
def reverse_sequence(node: OnnxNode) -> str:
    batch, time = (node.axis(node.attr_int(a, d), node.rank()) for a, d in (("batch_axis", 1), ("time_axis", 0)))
    node.must_lie(node.input(1), (0,), (node.shape()[time] + 1,), "the length of a sequence")
    return node.emit("reverse_sequence", node.input(0), node.input(1), batch_axis=batch, time_axis=time)


@converts("EyeLike")
def eye_like(node: OnnxNode) -> str:
    """A constant: ones on diagonal k of a matrix of the input's shape."""
    if node.rank() != 2:
        raise ModelError(f"{node.label}: needs a matrix, got shape {node.shape()}")
    if math.prod(node.shape()) > MAX_BROADCAST_ELEMENTS:
        raise UnsupportedError(f"{node.label}: a constant of shape {node.shape()}")
    dtype = DType(node.value().dtype)
    if node.has("dtype"):
        dtype = dtype_of(node.attr_int("dtype", 0), node.label)
    rows, columns = node.shape()
    eye = np.arange(columns)[None, :] - np.arange(rows)[:, None] == node.attr_int("k", 0)
    return node.new_constant(eye.astype(dtype.numpy))


@converts("Compress")
def compress(node: OnnxNode) -> str:
    """The slices along an axis, or elements of the flat tensor, where a constant condition holds."""
    condition = node.constant(1, "the condition")
    x, shape = node.input(0), node.shape()
    if node.has("axis"):
        axis = node.axis(node.attr_int("axis", 0), node.rank())
    else:
        x, axis = node.reshaped(x, (math.prod(shape),)), 0
    chosen = np.flatnonzero(condition)
    extent = node.builder.values[x].shape[axis]
    if condition.ndim != 1 or condition.size > extent:
        raise ModelError(f"{node.label}: a condition of shape {condition.shape} for {extent} slices")
    return node.emit("gather", x, node.new_constant(chosen.astype(np.int64)), axis=axis)


@converts("Det")
def determinant(node: OnnxNode) -> str:
    return node.emit("determinant", node.input(0))
