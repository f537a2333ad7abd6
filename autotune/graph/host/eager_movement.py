"""Eager operators that move elements, look them up, or write them to places."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host.eager import PLAIN, Arrays, Compute, axes_of, eagerly, ints_of, quietly
from autotune.graph.ir import Array


@eagerly("Identity")
def _identity(node: NodeAttributes) -> Compute:
    return lambda given: given[:1]


@eagerly("Shape")
def _shape(node: NodeAttributes) -> Compute:
    start, end = node.attr_int("start", 0), node.attr_int("end", 2**31)
    return lambda given: (np.array(given[0].shape[start:end], np.int64),)


@eagerly("Size")
def _size(node: NodeAttributes) -> Compute:
    return lambda given: (np.array(given[0].size, np.int64),)


@eagerly("Gather", inputs=2)
def _gather(node: NodeAttributes) -> Compute:
    axis = node.attr_int("axis", 0)
    return lambda given: (given[0].take(given[1], axis),) if given[1].dtype.kind in "iu" else None


@eagerly("Concat")
def _concat(node: NodeAttributes) -> Compute | None:
    if not node.has("axis"):
        return None
    axis = node.attr_int("axis", 0)
    return lambda given: (np.concatenate(given, axis),) if all(a.dtype == given[0].dtype for a in given[1:]) else None


@eagerly("Unsqueeze")
def _unsqueeze(node: NodeAttributes) -> Compute:
    axes = axes_of(node)
    return lambda given: (np.expand_dims(given[0], tuple(axes(given) or ())),)


@eagerly("Squeeze")
def _squeeze(node: NodeAttributes) -> Compute:
    wanted = axes_of(node)

    def compute(given: Arrays) -> Arrays:
        axes = wanted(given)
        return (given[0].squeeze(None if axes is None else tuple(axes)),)

    return compute


@eagerly("Transpose")
def _transpose(node: NodeAttributes) -> Compute:
    order = node.attr_ints("perm")
    return lambda given: (given[0].transpose(order),)


@eagerly("Reshape", inputs=2)
def _reshape(node: NodeAttributes) -> Compute | None:
    if node.attr_flag("allowzero"):
        return None

    def compute(given: Arrays) -> Arrays:
        x, wanted = given[0], ints_of(given[1])
        return (x.reshape([x.shape[n] if extent == 0 else extent for n, extent in enumerate(wanted)]),)

    return compute


@eagerly("Flatten")
def _flatten(node: NodeAttributes) -> Compute:
    axis = node.attr_int("axis", 1)

    def compute(given: Arrays) -> Arrays | None:
        x = given[0]
        if not -x.ndim <= axis <= x.ndim:
            return None
        cut = axis + x.ndim if axis < 0 else axis
        return (x.reshape(math.prod(x.shape[:cut]), math.prod(x.shape[cut:])),)

    return compute


@eagerly("Slice", inputs=3)
def _slice(node: NodeAttributes) -> Compute | None:
    if node.opset < 10:
        return None

    def compute(given: Arrays) -> Arrays | None:
        x, starts, ends = given[0], ints_of(given[1]), ints_of(given[2])
        axes = ints_of(given[3]) if len(given) > 3 else list(range(len(starts)))
        steps = ints_of(given[4]) if len(given) > 4 else [1] * len(starts)
        if not len(starts) == len(ends) == len(axes) == len(steps) or min(steps, default=1) < 1:
            return None
        window = [slice(None)] * x.ndim
        for start, end, axis, step in zip(starts, ends, axes, steps):
            window[axis] = slice(start, end, step)
        return (x[tuple(window)],)

    return compute


@eagerly("Split")
def _split(node: NodeAttributes) -> Compute:
    axis, parts = node.attr_int("axis", 0), len(node.proto.output)
    own = node.attr_ints("split")
    node.attr_int("num_outputs", 0)

    def compute(given: Arrays) -> Arrays | None:
        extent = given[0].shape[axis]
        step = -(-extent // parts)
        sizes = ints_of(given[1]) if len(given) > 1 else list(own or [])
        sizes = sizes or [max(0, min(step, extent - n * step)) for n in range(parts)]
        if sum(sizes) != extent or len(sizes) != parts or min(sizes) < 0:
            return None
        return np.split(given[0], np.cumsum(sizes[:-1]), axis)

    return compute


@eagerly("Expand", inputs=2)
def _expand(node: NodeAttributes) -> Compute:
    def compute(given: Arrays) -> Arrays:
        return (np.broadcast_to(given[0], np.broadcast_shapes(given[0].shape, tuple(ints_of(given[1])))),)

    return compute


@eagerly("Tile", inputs=2)
def _tile(node: NodeAttributes) -> Compute | None:
    if node.opset < 6:
        return None
    return lambda given: (np.tile(given[0], ints_of(given[1])),) if given[1].size == given[0].ndim else None


@eagerly("ConstantOfShape")
def _constant_of_shape(node: NodeAttributes) -> Compute | None:
    value = node.attr_tensor("value")
    if value is not None and (value.size != 1 or value.dtype.char not in PLAIN):
        return None
    number = np.zeros((), np.float32) if value is None else value.reshape(())
    return lambda given: (np.full(ints_of(given[0]), number),)


@eagerly("Range", inputs=3)
def _range(node: NodeAttributes) -> Compute:
    def compute(given: Arrays) -> Arrays | None:
        start, limit, step = given
        if start.dtype.kind != "i" or not start.size == limit.size == step.size == 1 or not step.any():
            return None
        return (np.arange(start.item(), limit.item(), step.item(), dtype=start.dtype),)

    return compute


@eagerly("GatherElements", inputs=2)
def _gather_elements(node: NodeAttributes) -> Compute:
    axis = node.attr_int("axis", 0)
    return lambda given: (given[0][_along(given[1], axis)],)


def _along(indices: Array, axis: int) -> tuple[Array, ...]:
    """Places of elements: those of `indices` but along an axis."""
    if indices.dtype.kind not in "iu":
        raise TypeError("integers are needed")
    places = list(np.ogrid[tuple(slice(extent) for extent in indices.shape)])
    places[axis] = indices
    return tuple(places)


@eagerly("GatherND", inputs=2)
def _gather_nd(node: NodeAttributes) -> Compute | None:
    if node.attr_int("batch_dims", 0):
        return None
    return lambda given: (given[0][_places(given[1])],)


def _places(indices: Array) -> tuple[Array, ...]:
    if indices.dtype.kind not in "iu":
        raise TypeError("integers are needed")
    return tuple([indices[..., n] for n in range(indices.shape[-1])])


_COMBINES: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@eagerly("ScatterElements", "ScatterND", inputs=3)
def _scatter(node: NodeAttributes) -> Compute | None:
    reduction, axis = node.attr_string("reduction", "none"), node.attr_int("axis", 0)
    combine = quietly(_COMBINES[reduction]) if reduction in _COMBINES else None
    if combine is None and reduction != "none":
        return None

    def compute(given: Arrays) -> Arrays | None:
        x, indices, more = given
        if more.dtype != x.dtype or more.dtype.kind == "b":
            return None
        rows = indices.shape if node.op == "ScatterElements" else (*indices.shape[:-1], *x.shape[indices.shape[-1] :])
        if more.shape != rows:
            return None
        places = _along(indices, axis) if node.op == "ScatterElements" else _places(indices)
        found = x.copy()
        if combine is None:
            found[places] = more
        elif _are_different(places, x.shape):
            found[places] = combine(found[places], more)
        else:
            _COMBINES[reduction].at(found, places, more)
        return (found,)

    return compute


def _are_different(places: tuple[Array, ...], shape: tuple[int, ...]) -> bool:
    """Whether no element is named twice; those of indices outside of the shape are for NumPy to refuse."""
    numbers = np.zeros((), np.int64)
    for index, extent in zip(places, shape):
        numbers = numbers * extent + np.where(index < 0, index + extent, index)
    return bool(np.unique(numbers).size == numbers.size)


@eagerly("Where", inputs=3)
def _where(node: NodeAttributes) -> Compute:
    def compute(given: Arrays) -> Arrays | None:
        condition, x, y = given
        return (np.where(condition, x, y),) if condition.dtype.kind == "b" and x.dtype == y.dtype else None

    return compute
