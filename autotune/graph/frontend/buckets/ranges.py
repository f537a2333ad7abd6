"""Ranges and slices that are as long as an open dimension but begin elsewhere than at 0: counted from 0, then moved.

So what is as long as the new tokens of a decoder, and begins where those before them end, may be padded: how long it is
and where it begins are values of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from autotune.graph.frontend.buckets.analysis import facts_of
from autotune.graph.frontend.buckets.computed import difference
from autotune.graph.frontend.buckets.facts import Extent, Fact, number_of, terms_of
from autotune.graph.frontend.buckets.movement import END
from autotune.graph.frontend.entry import Entry
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.ir import Array

OPSET = 17
"""Of the nodes that count and move."""


def counted_from_zero(model: OnnxModel, before: Extent) -> OnnxModel:
    """The same model.

    Args:
        before: what is known not to be negative, beside open dimensions: where new tokens begin.

    Raises:
        CannotPad: as `facts_of`.
    """
    facts = facts_of(model)
    written = _Written(dict(model.initializers))
    for entry in model.nodes:
        given = [facts.get(name) for name in entry.proto.input]
        node = entry.proto
        part = _part_of(given, before) if node.op_type == "Slice" else None
        ranged = node.op_type == "Range" and _ones(given[2:])
        if part is not None:
            written.slice(node, *part)
        elif ranged and _begins_elsewhere(_number(given[0]), _number(given[1]), before):
            written.range(node.input[0], node.input[1], node.input[2], node.output[0])
        else:
            written.nodes.append(entry)
    return replace(model, initializers=written.initializers, nodes=written.nodes, _expanded={})


def _begins_elsewhere(first: Extent, end: Extent, before: Extent) -> bool:
    """Whether what lies between two places is as long as an open dimension and begins behind the first element."""
    if first in (0, None) or not isinstance(difference(end, first), str):
        return False
    return _is_count(first) or _is_count(difference(first, before))


def _is_count(extent: Extent) -> bool:
    """Whether it is surely not negative."""
    return extent is not None and min([number_of(extent), *terms_of(extent).values()]) >= 0


def _number(fact: Fact | None) -> Extent:
    return fact.elements[0] if fact is not None and fact.elements is not None and len(fact.elements) == 1 else None


def _ones(facts: Sequence[Fact | None]) -> bool:
    return all(fact is None or set(fact.elements or ()) == {1} for fact in facts)


def _part_of(given: Sequence[Fact | None], before: Extent) -> tuple[int, bool] | None:
    """The axis of a slice that is to be counted from 0, and whether it goes up to the end of the dimension: out of a
    static one, or all that is left of another."""
    if len(given) < 4 or given[0] is None or not _ones(given[4:5]):
        return None
    dims, axis, end = given[0].dims, _number(given[3]), _number(given[2])
    if dims is None or not isinstance(axis, int) or not -len(dims) <= axis < len(dims):
        return None
    extent = dims[axis]
    all_of_it = extent is not None and (end == extent or (isinstance(end, int) and end >= END))
    if not (all_of_it or isinstance(extent, int)):
        return None
    last = extent if all_of_it else end
    return (axis % len(dims), all_of_it) if _begins_elsewhere(_number(given[1]), last, before) else None


class _Written:
    """The nodes so far, in order."""

    def __init__(self, initializers: dict[str, Array]) -> None:
        self.initializers = initializers
        self.nodes: list[Entry] = []

    def range(self, start: str, limit: str, step: str, result: str) -> None:
        """As many as there are up to `limit`, one by one: `step` is 1."""
        prefix = f"autotune.range/{result}"
        zero = self._node("Sub", [start, start], f"{prefix}/zero")
        count = self._node("Sub", [limit, start], f"{prefix}/count")
        counted = self._node("Range", [zero, count, step], f"{prefix}/counted")
        self._node("Add", [counted, start], result)

    def slice(self, node: onnx.NodeProto, axis: int, all_of_it: bool) -> None:
        data, start, end = node.input[:3]
        prefix = f"autotune.range/{node.output[0]}"
        if all_of_it:
            end = self._node("Shape", [data], f"{prefix}/extent", start=axis, end=axis + 1)
        none = self._constant([], f"{prefix}/none")
        first, last = (
            self._node("Reshape", [self._node("Cast", [name], f"{prefix}/{part}64", to=TensorProto.INT64), none],
                       f"{prefix}/{part}")
            for name, part in ((start, "start"), (end, "end"))
        )  # fmt: skip
        places = f"{prefix}/places"
        self.range(first, last, self._constant(1, f"{prefix}/step"), places)
        self._node("Gather", [data, places], node.output[0], axis=axis)

    def _constant(self, value: int | list[int], name: str) -> str:
        self.initializers[name] = np.asarray(value, np.int64)
        return name

    def _node(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(Entry.of(helper.make_node(op, inputs, [name], name=name, **attributes), OPSET))
        return name
