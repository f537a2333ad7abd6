"""Sequences and optionals that are known while converting: tuples of values, and the value itself. They cost no run
anything; what depends on values of the run is put off, to the host (`autotune.graph.host.sequences`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Union

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode
from autotune.graph.host import cut_points

Static = Union[str, tuple[str, ...], None]
"""A graph value, a sequence of them, or an input that is left out; an empty optional too."""

ListConverter = Callable[[OnnxNode, Sequence[Static]], Static]
_CONVERTERS: dict[str, ListConverter] = {}


def _of_lists(op_type: str) -> Callable[[ListConverter], ListConverter]:
    def register(function: ListConverter) -> ListConverter:
        _CONVERTERS[op_type] = function
        return function

    return register


def list_converter(domain: str, op_type: str) -> ListConverter | None:
    """The converter of an operator that makes or takes sequences or optionals; None for any other."""
    return _CONVERTERS.get(op_type) if domain in ("", "ai.onnx") else None


@_of_lists("SequenceEmpty")
def _empty(node: OnnxNode, operands: Sequence[Static]) -> Static:
    return ()


@_of_lists("SequenceConstruct")
def _construct(node: OnnxNode, operands: Sequence[Static]) -> Static:
    items = tuple(_tensor(node, operands, position) for position in range(len(operands)))
    for position, item in enumerate(items):
        _must_fit(node, items[:1], item, position)
    return items


@_of_lists("SequenceInsert")
def _insert(node: OnnxNode, operands: Sequence[Static]) -> Static:
    items, new = _list(node, operands), _tensor(node, operands, 1)
    _must_fit(node, items[:1], new, 1)
    place = _place(node, 2, len(items), len(items), last=len(items))
    return (*items[:place], new, *items[place:])


@_of_lists("SequenceErase")
def _erase(node: OnnxNode, operands: Sequence[Static]) -> Static:
    items = _list(node, operands)
    place = _place(node, 1, len(items) - 1, len(items))
    return (*items[:place], *items[place + 1 :])


@_of_lists("SequenceAt")
def _at(node: OnnxNode, operands: Sequence[Static]) -> Static:
    items = _list(node, operands)
    return items[_place(node, 1, None, len(items))]


@_of_lists("SequenceLength")
def _length(node: OnnxNode, operands: Sequence[Static]) -> Static:
    return node.new_constant(np.asarray(len(_list(node, operands)), np.int64))


@_of_lists("ConcatFromSequence")
def _concat(node: OnnxNode, operands: Sequence[Static]) -> Static:
    items = _list(node, operands)
    if not items:
        raise ModelError(f"{node.label}: the sequence is empty, so there is nothing to concatenate")
    shape = node.builder.values[items[0]].shape
    new = node.attr_flag("new_axis")
    axis = node.axis(node.attr_int("axis", 0), len(shape) + new)
    if new:
        wider = (*shape[:axis], 1, *shape[axis:])
        if any(node.builder.values[item].shape != shape for item in items):
            raise ModelError(f"{node.label}: tensors of different shapes cannot be stacked")
        items = tuple(node.reshaped(item, wider) for item in items)
    return items[0] if len(items) == 1 else node.emit("concat", *items, axis=axis)


@_of_lists("SplitToSequence")
def _split(node: OnnxNode, operands: Sequence[Static]) -> Static:
    x = _tensor(node, operands, 0)
    shape = node.builder.values[x].shape
    axis = node.axis(node.attr_int("axis", 0), len(shape))
    given = len(operands) > 1 and operands[1] is not None
    cuts = cut_points(node.label, shape[axis], node.constant(1, "the lengths") if given else None)
    keep = given or node.attr_flag("keepdims", default=True)
    parts = []
    for begin, end in zip([0, *cuts], [*cuts, shape[axis]]):
        ranges = [range(extent) for extent in shape]
        ranges[axis] = range(begin, end)
        part = node.sliced(x, ranges)
        parts.append(part if keep else node.reshaped(part, (*shape[:axis], *shape[axis + 1 :])))
    return tuple(parts)


@_of_lists("Optional")
def _optional(node: OnnxNode, operands: Sequence[Static]) -> Static:
    return operands[0] if operands else None


@_of_lists("OptionalHasElement")
def _has_element(node: OnnxNode, operands: Sequence[Static]) -> Static:
    return node.new_constant(np.asarray(bool(operands) and operands[0] is not None))


@_of_lists("OptionalGetElement")
def _get_element(node: OnnxNode, operands: Sequence[Static]) -> Static:
    if not operands or operands[0] is None:
        raise ModelError(f"{node.label}: the optional is empty, so it has no element")
    return operands[0]


@_of_lists("Identity")
def _identity(node: OnnxNode, operands: Sequence[Static]) -> Static:
    return operands[0] if operands else None


def _list(node: OnnxNode, operands: Sequence[Static]) -> tuple[str, ...]:
    found = operands[0] if operands else None
    if not isinstance(found, tuple):
        raise ModelError(f"{node.label}: input 0 is {'nothing' if found is None else 'a tensor'}, not a sequence")
    return found


def _tensor(node: OnnxNode, operands: Sequence[Static], position: int) -> str:
    found = operands[position] if position < len(operands) else None
    if not isinstance(found, str):
        raise ModelError(f"{node.label}: input {position} is {'missing' if found is None else 'a sequence'}")
    return found


def _place(node: OnnxNode, position: int, default: int | None, count: int, last: int | None = None) -> int:
    """A place given by an input, counted from the end where it is negative; `last` is the largest there is."""
    last = count - 1 if last is None else last
    if not node.given(position):
        if default is None or not 0 <= default <= last:
            raise ModelError(f"{node.label}: " + ("no position is given" if default is None else "nothing is in it"))
        return default
    place = node.constant_int(position, "the position")
    if not -count <= place <= last:
        raise ModelError(f"{node.label}: position {place} is outside of {-count}..{last}")
    return place + count if place < 0 else place


def _must_fit(node: OnnxNode, items: tuple[str, ...], new: str, position: int) -> None:
    values = node.builder.values
    if items and values[items[0]].dtype != values[new].dtype:
        raise ModelError(
            f"{node.label}: input {position} is {values[new].dtype}, the others are {values[items[0]].dtype}"
        )
