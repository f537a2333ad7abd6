"""Sequences and optionals: Python lists of arrays, and the value itself or None."""

from __future__ import annotations

import numpy as np

from autotune.errors import InputError, ModelError
from autotune.graph.host.node import HostNode, HostValue, described, of_values, on_host
from autotune.graph.ir import Array


@on_host("SequenceEmpty")
def empty(node: HostNode) -> tuple[HostValue]:
    return ([],)


@on_host("SequenceConstruct")
def construct(node: HostNode) -> tuple[HostValue]:
    items = [node.array(position) for position in range(len(node.values))]
    for position, item in enumerate(items):
        _must_fit(node, items[:1], item, position)
    return (items,)


@on_host("SequenceInsert")
def insert(node: HostNode) -> tuple[HostValue]:
    items, new = node.sequence(0), node.array(1)
    _must_fit(node, items[:1], new, 1)
    place = _place(node, 2, len(items), len(items), last=len(items))
    return ([*items[:place], new, *items[place:]],)


@on_host("SequenceErase")
def erase(node: HostNode) -> tuple[HostValue]:
    items = node.sequence(0)
    place = _place(node, 1, len(items) - 1, len(items))
    return ([*items[:place], *items[place + 1 :]],)


@on_host("SequenceAt")
def at(node: HostNode) -> tuple[HostValue]:
    items = node.sequence(0)
    return (items[_place(node, 1, None, len(items))],)


@on_host("SequenceLength")
def length(node: HostNode) -> tuple[HostValue]:
    return (np.asarray(len(node.sequence(0)), np.int64),)


@on_host("ConcatFromSequence")
def concat(node: HostNode) -> tuple[HostValue]:
    items, axis = node.sequence(0), node.attr_int("axis", 0)
    if not items:
        raise InputError(f"{node.label}: the sequence is empty, so there is nothing to concatenate")
    try:
        return (np.stack(items, axis) if node.attr_flag("new_axis") else np.concatenate(items, axis),)
    except ValueError as error:  # AxisError is one
        shapes = ", ".join(str(list(item.shape)) for item in items[:8])
        raise InputError(f"{node.label}: tensors of shapes {shapes} do not concatenate along axis {axis}") from error


@on_host("SplitToSequence")
def split(node: HostNode) -> tuple[HostValue]:
    x, lengths, axis = node.array(0), node.optional(1), node.attr_int("axis", 0)
    if not -x.ndim <= axis < x.ndim:
        raise ModelError(f"{node.label}: axis {axis} is outside a tensor of rank {x.ndim}")
    keep = lengths is not None or node.attr_flag("keepdims", default=True)
    cuts = cut_points(node.label, x.shape[axis], None if lengths is None else lengths)
    parts = np.split(x, cuts, axis)
    return ([np.ascontiguousarray(part if keep else part.squeeze(axis)) for part in parts],)


def cut_points(label: str, extent: int, lengths: Array | None) -> list[int]:
    """Where SplitToSequence cuts an axis: in pieces of one length (the last one takes what is left), of given
    lengths, or of 1."""
    if lengths is None:
        return list(range(1, extent))
    if lengths.ndim == 0 and lengths > 0:
        return list(range(int(lengths), extent, int(lengths)))
    if lengths.ndim != 1 or (lengths < 0).any() or lengths.sum() != extent:
        raise InputError(f"{label}: lengths {lengths.tolist()} do not make up an axis of extent {extent}")
    return [int(end) for end in np.cumsum(lengths)[:-1]]


@on_host("Optional")
def optional(node: HostNode) -> tuple[HostValue]:
    return (node.value(0),)


@on_host("OptionalHasElement")
def has_element(node: HostNode) -> tuple[HostValue]:
    return (np.asarray(node.value(0) is not None),)


@on_host("OptionalGetElement")
def get_element(node: HostNode) -> tuple[HostValue]:
    if node.value(0) is None:
        raise InputError(f"{node.label}: the optional is empty, so it has no element")
    return (node.value(0),)


@of_values("Identity")
def identity(node: HostNode) -> tuple[HostValue]:
    return (node.value(0),)


def _place(node: HostNode, position: int, default: int | None, count: int, last: int | None = None) -> int:
    """A place given by an input, counted from the end where it is negative; `last` is the largest there is."""
    last = count - 1 if last is None else last
    given = node.optional(position)
    if given is None and default is not None and 0 <= default <= last:
        return default
    if given is None:
        raise InputError(f"{node.label}: " + ("no position is given" if default is None else "the sequence is empty"))
    if given.size != 1 or given.dtype.kind not in "iu":
        raise ModelError(f"{node.label}: the position is one integer, not {described(given)}")
    place = int(given.reshape(()))
    if not -count <= place <= last:
        raise InputError(f"{node.label}: position {place} is outside of {-count}..{last}")
    return place + count if place < 0 else place


def _must_fit(node: HostNode, items: list[Array], new: Array, position: int) -> None:
    if items and items[0].dtype != new.dtype:
        raise ModelError(f"{node.label}: input {position} is {described(new)}; the others are {items[0].dtype}")
