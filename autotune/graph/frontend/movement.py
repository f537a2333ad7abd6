"""Operators that move data: reshape, transpose, concat, slice, split, expand."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts


@converts("Reshape")
def reshape(node: OnnxNode) -> str:
    shape = list(node.constant_ints(1, "the shape"))
    source = node.shape()
    if not node.attr_flag("allowzero"):
        for axis, extent in enumerate(shape):
            if extent == 0:
                if axis >= len(source):
                    raise ModelError(
                        f"{node.label}: dimension {axis} of {tuple(shape)} copies one that {source} has not"
                    )
                shape[axis] = source[axis]
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        raise ModelError(f"{node.label}: impossible shape {tuple(shape)}")
    if -1 in shape:
        known = -math.prod(shape)
        if known == 0 or math.prod(source) % known:
            raise ModelError(f"{node.label}: {source} does not fit into {tuple(shape)}")
        shape[shape.index(-1)] = math.prod(source) // known
    return node.reshaped(node.input(0), shape)


@converts("Flatten")
def flatten(node: OnnxNode) -> str:
    shape, rank = node.shape(), node.rank()
    axis = node.attr_int("axis", 1)
    if not -rank <= axis <= rank:
        raise ModelError(f"{node.label}: axis {axis} is outside a tensor of rank {rank}")
    axis = axis + rank if axis < 0 else axis
    return node.reshaped(node.input(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


@converts("Squeeze")
def squeeze(node: OnnxNode) -> str:
    """An empty attribute (before opset 13) means all axes of 1, as none does; an empty operand means no axis.

    An axis that is not 1 stays: torch's squeeze means that, and its exporter writes it down as it is.
    """
    shape = node.shape()
    given = node.ints_or_input("axes", 1)
    if given is None or (not given and node.has("axes")):
        axes = {axis for axis, extent in enumerate(shape) if extent == 1}
    else:
        axes = {axis for axis in (node.axis(a, len(shape)) for a in given) if shape[axis] == 1}
    return node.reshaped(node.input(0), [extent for axis, extent in enumerate(shape) if axis not in axes])


@converts("Unsqueeze")
def unsqueeze(node: OnnxNode) -> str:
    given = node.ints_or_input("axes", 1) or ()
    rank = node.rank() + len(given)
    axes = {node.axis(axis, rank) for axis in given}
    if len(axes) != len(given):
        raise ModelError(f"{node.label}: axes {given} repeat an axis")
    extents = iter(node.shape())
    return node.reshaped(node.input(0), [1 if axis in axes else next(extents) for axis in range(rank)])


@converts("Transpose")
def transpose(node: OnnxNode) -> str:
    return node.transposed(node.input(0), node.attr_ints("perm", tuple(reversed(range(node.rank())))) or ())


@converts("Concat")
def concat(node: OnnxNode) -> str:
    inputs = node.all_inputs()
    axis = node.axis(node.attr_int("axis", 1), node.rank())
    return inputs[0] if len(inputs) == 1 else node.emit("concat", *inputs, axis=axis)


@converts("Slice")
def slice_(node: OnnxNode) -> str:
    """Starts and ends clamp to the tensor; attributes before opset 10, inputs after.

    As in NumPy, except that a start before the first element is the first element backwards, too.
    """
    starts, ends = node.ints_or_input("starts", 1) or (), node.ints_or_input("ends", 2) or ()
    axes = node.ints_or_input("axes", 3)
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (node.constant_ints(4, "steps") if node.given(4) else None) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ModelError(
            f"{node.label}: starts {starts}, ends {ends}, axes {axes} and steps {steps} do not fit together"
        )
    ranges = [range(extent) for extent in node.shape()]
    for start, end, axis, step in zip(starts, ends, axes, steps):
        axis = node.axis(axis, node.rank())
        extent = node.shape()[axis]
        ranges[axis] = range(extent)[slice(max(start, -extent) if step < 0 else start, end, step)]
    return node.sliced(node.input(0), ranges)


@converts("Split")
def split(node: OnnxNode) -> tuple[str, ...]:
    axis = node.axis(node.attr_int("axis", 0), node.rank())
    extent, parts = node.shape()[axis], len(node.proto.output)
    sizes = node.ints_or_input("split", 1)
    if sizes is None:
        chunk = -(-extent // parts)
        sizes = tuple(max(0, min(chunk, extent - i * chunk)) for i in range(parts))
    if len(sizes) != parts or sum(sizes) != extent or min(sizes, default=0) < 0:
        raise ModelError(f"{node.label}: sizes {sizes} do not split extent {extent} into {parts} outputs")
    results, start = [], 0
    for size in sizes:
        ranges = [range(e) for e in node.shape()]
        ranges[axis] = range(start, start + size)
        results.append(node.sliced(node.input(0), ranges))
        start += size
    return tuple(results)


@converts("Expand")
def expand(node: OnnxNode) -> str:
    """Broadcasting to a shape; a constant becomes a view."""
    try:
        shape = np.broadcast_shapes(node.shape(), node.constant_ints(1, "the shape"))
    except ValueError as error:
        raise ModelError(f"{node.label}: {node.shape()} does not broadcast to the shape given") from error
    return node.expanded(node.input(0), shape)
