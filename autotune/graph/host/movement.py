"""Operators that move elements, for values that stay on the host: views of NumPy where that is possible."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.errors import InputError, ModelError
from autotune.graph.host.node import HostNode, described, of_values
from autotune.graph.ir import Array


@of_values("Shape")
def shape(node: HostNode) -> tuple[Array]:
    x = node.array(0)
    return (np.asarray(x.shape[node.attr_int("start", 0) : node.attr_int("end", x.ndim)], np.int64),)


@of_values("Size")
def size(node: HostNode) -> tuple[Array]:
    return (np.asarray(node.array(0).size, np.int64),)


@of_values("Gather")
def gather(node: HostNode) -> tuple[Array]:
    x, indices = node.array(0), node.array(1)
    axis = _axis(node, node.attr_int("axis", 0), x.ndim)
    if indices.dtype.kind not in "iu":
        raise ModelError(f"{node.label}: the indices are {described(indices)}; they must be integers")
    try:
        return (x[(slice(None),) * axis + (indices, ...)],)
    except IndexError as error:
        extent = x.shape[axis]
        outside = indices[(indices < -extent) | (indices >= extent)]
        raise InputError(
            f"{node.label}: an index into axis {axis} is outside of {-extent}..{extent - 1}; give others"
            f" ({outside[0]} is one)"
        ) from error


@of_values("Concat")
def concat(node: HostNode) -> tuple[Array]:
    parts = [node.array(position) for position in range(len(node.values))]
    axis = _axis(node, node.attr_int("axis", 1), parts[0].ndim)
    try:
        found = np.concatenate(parts, axis)
    except ValueError as error:
        shapes = ", ".join(str(list(part.shape)) for part in parts[:8])
        raise InputError(f"{node.label}: tensors of shapes {shapes} do not concatenate along axis {axis}") from error
    if any(part.dtype != parts[0].dtype for part in parts):
        raise ModelError(f"{node.label}: its inputs are {', '.join(map(described, parts))}; cast them to one type")
    return (found,)


@of_values("Slice")
def slice_(node: HostNode) -> tuple[Array]:
    """A start before the first element is the first element, backwards too."""
    x = node.array(0)
    if node.has("starts"):
        starts, ends, axes = (node.attr_ints(name) for name in ("starts", "ends", "axes"))
        steps: Sequence[int] | None = None
    else:
        starts, ends, axes, steps = (_ints(node, position) for position in (1, 2, 3, 4))
    starts, ends = starts or (), ends or ()
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ModelError(
            f"{node.label}: starts {starts}, ends {ends}, axes {axes} and steps {steps} do not fit together"
        )
    window = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        axis = _axis(node, axis, x.ndim)
        extent = x.shape[axis]
        if step < 0:
            start = max(start, -extent)
            end = None if end < -extent else end  # type: ignore[assignment]
        window[axis] = slice(start, end, step)
    return (x[tuple(window)],)


@of_values("Reshape")
def reshape(node: HostNode) -> tuple[Array]:
    x, wanted = node.array(0), list(_ints(node, 1) or ())
    if not node.attr_flag("allowzero"):
        if any(extent == 0 and axis >= x.ndim for axis, extent in enumerate(wanted)):
            raise InputError(f"{node.label}: {tuple(wanted)} copies a dimension that {x.shape} has not")
        wanted = [x.shape[axis] if extent == 0 else extent for axis, extent in enumerate(wanted)]
    try:
        return (x.reshape(wanted),)
    except ValueError as error:
        raise InputError(f"{node.label}: {x.shape} does not fit into {tuple(wanted)}") from error


@of_values("Flatten")
def flatten(node: HostNode) -> tuple[Array]:
    x, axis = node.array(0), node.attr_int("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise ModelError(f"{node.label}: axis {axis} is outside a tensor of rank {x.ndim}")
    axis = axis + x.ndim if axis < 0 else axis
    return (x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])),)


@of_values("Squeeze")
def squeeze(node: HostNode) -> tuple[Array]:
    """An axis that is not 1 stays, as torch means it."""
    x = node.array(0)
    given = node.attr_ints("axes") or None if node.has("axes") else _ints(node, 1)
    if given is None:
        return (x.squeeze(),)
    axes = {_axis(node, axis, x.ndim) for axis in given}
    return (x.reshape([extent for axis, extent in enumerate(x.shape) if axis not in axes or extent != 1]),)


@of_values("Unsqueeze")
def unsqueeze(node: HostNode) -> tuple[Array]:
    x = node.array(0)
    given = node.attr_ints("axes") if node.has("axes") else _ints(node, 1)
    axes = [_axis(node, axis, x.ndim + len(given or ())) for axis in given or ()]
    if len(set(axes)) != len(axes):
        raise ModelError(f"{node.label}: axes {given} repeat an axis")
    return (np.expand_dims(x, tuple(axes)),)


@of_values("Transpose")
def transpose(node: HostNode) -> tuple[Array]:
    x = node.array(0)
    perm = node.attr_ints("perm", tuple(reversed(range(x.ndim)))) or ()
    if sorted(perm) != list(range(x.ndim)):
        raise ModelError(f"{node.label}: perm={perm} is no order of {x.ndim} dimensions")
    return (x.transpose(perm),)


def _ints(node: HostNode, position: int) -> tuple[int, ...] | None:
    found = node.optional(position)
    if found is None:
        return None
    if found.dtype.kind not in "iu":
        raise ModelError(f"{node.label}: input {position} is {described(found)}; it must be integers")
    return tuple(found.reshape(-1).tolist())


def _axis(node: HostNode, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"{node.label}: axis {axis} is outside a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis
