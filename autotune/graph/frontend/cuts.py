"""Slices whose ends a step computes: looked up in a window of a fixed extent, of which as much counts as the slice has.

y = Slice(x, start, end, axis)
-->
y = Gather(x, min(clipped start + 0 .. window - 1, last place), axis)        of which end - start elements count
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from autotune.graph.frontend.buckets import CannotPad, dimensions_of, padded_model, padding_of, valid_name
from autotune.graph.frontend.buckets.types import inferred_types
from autotune.graph.frontend.entry import Entry, sorted_entries
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.source import elem_type_of, tensor_array
from autotune.graph.ir import Array
from autotune.tensor.declared import ModelInput

SYMBOL = "window"
WINDOW = "autotune.window"
"""An input of zeros, as long as the window."""

OPSET = 17
"""Of the nodes that look up."""

BEYOND = 2**40
"""A place that no window has."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A Slice of a model along one axis.

    Attributes:
        place: in the model's table.
        data, start, end: names of what it reads.
    """

    place: int
    data: str
    start: str
    end: str
    axis: int


def cuts_of(model: OnnxModel) -> tuple[Cut, ...]:
    """The slices whose start or end is computed; all have the same ones. Nothing where that is not so."""
    known = _known(model)
    found = []
    for place, entry in enumerate(model.nodes):
        proto = entry.proto
        if proto.op_type != "Slice" or len(proto.input) < 3 or (proto.input[1] in known and proto.input[2] in known):
            continue
        axes, steps = (known.get(name) if name else None for name in [*proto.input[3:5], "", ""][:2])
        given = [bool(name) for name in [*proto.input[3:5], "", ""][:2]]
        if axes is None or axes.size != 1 or (given[1] and (steps is None or steps.tolist() != [1])):
            return ()
        found.append(Cut(place, proto.input[0], proto.input[1], proto.input[2], int(axes.reshape(()))))
    return tuple(found) if len({(cut.start, cut.end) for cut in found}) == 1 else ()


def windowed(model: OnnxModel, cuts: Sequence[Cut]) -> OnnxModel:
    """The model with a window for these slices, an input with the open dimension `SYMBOL`. Where a slice has more than
    that, a run has impossible values.

    Args:
        model: whose inputs have known types.

    Raises:
        CannotPad: what lies behind a slice may change other elements.
    """
    nodes, writer = list(model.nodes), _Writer(dict(model.initializers))
    count = writer.node("Shape", WINDOW)
    places = writer.node("Range", writer.number(0), writer.node("Squeeze", count), writer.number(1))
    for cut in cuts:
        extent, start, _ = writer.ends(cut)
        last = writer.node("Sub", extent, writer.number(1))
        looked = writer.node("Min", writer.node("Add", places, start), last)
        (result,) = nodes[cut.place].writes
        nodes[cut.place] = _entry("Gather", [cut.data, looked], result, axis=cut.axis)
    inputs = (*model.inputs, ModelInput(WINDOW, "i64", (SYMBOL,)))
    source = _sorted(replace(model, inputs=inputs, initializers=writer.initializers), [*writer.nodes, *nodes])
    source = _with_sums(source, cuts[0], writer)
    padding = padding_of(source, SYMBOL)
    longer = [name for name, axes in padding.outputs.items() if axes]
    if longer or not padding.ends:
        raise CannotPad(f"'{min(longer, default='nothing')}' is as long as a slice of a step")
    padded = padded_model(source, padding)
    writer = _Writer(dict(padded.initializers), "count")
    counts = [writer.count(cut) for cut in cuts]
    end = writer.node("Sub", counts[0], writer.number(1))
    if not _may_be_empty(source):
        none = writer.node("Less", end, writer.number(0))
        end = writer.node("Where", none, writer.number(BEYOND), end)
    checked = [writer.node("Gather", WINDOW, end)]  # zeros: what lies beyond the window is an index out of range
    checked += [writer.node("Gather", writer.zero(), writer.node("Sub", one, counts[0])) for one in counts[1:]]
    valid = counts[0]
    for zero in checked:
        valid = writer.node("Add", valid, zero)
    writer.nodes.append(_entry("Identity", [valid], valid_name(SYMBOL)))
    inputs = tuple(one for one in padded.inputs if one.name != valid_name(SYMBOL))
    return _sorted(replace(padded, inputs=inputs, initializers=writer.initializers), [*writer.nodes, *padded.nodes])


def _with_sums(model: OnnxModel, cut: Cut, writer: _Writer) -> OnnxModel:
    """The same with means along the open dimension as sums by the number of elements, which is one of the run."""
    dims, types, known = dimensions_of(model), inferred_types(model), _known(model)
    nodes = []
    for place, entry in enumerate(model.nodes):
        along = [n for n, extent in enumerate(dims.get(next(iter(entry.reads), "")) or ()) if extent == SYMBOL]
        if entry.proto.op_type != "ReduceMean" or len(along) != 1:
            nodes.append(entry)
            continue
        (data, *more), rank = entry.proto.input, len(dims[entry.proto.input[0]] or ())
        axes = known[more[0]].tolist() if more and more[0] in known else model.attributes(place).attr_ints("axes")
        if axes is not None and along[0] not in {axis % rank for axis in axes}:
            nodes.append(entry)
            continue
        dtype = types.get(data, (None,))[0]
        if dtype is None or (more and more[0] not in known):
            raise CannotPad(f"'{data}' is of an unknown type, or its mean along computed axes")
        count = writer.node("Cast", writer.count(cut), to=elem_type_of(dtype))
        total = writer.node("ReduceSum", data, writer.numbers(along), keepdims=1)
        proto = onnx.NodeProto()
        proto.CopyFrom(entry.proto)
        proto.input[0] = writer.node("Div", total, count)
        nodes.append(Entry.of(proto, entry.opset))
    taken = {name for entry in nodes for name in entry.writes}
    more_nodes = [entry for entry in writer.nodes if taken.isdisjoint(entry.writes)]
    return _sorted(replace(model, initializers=writer.initializers), [*more_nodes, *nodes])


def _may_be_empty(model: OnnxModel) -> bool:
    """Whether all that is made of the whole of a slice is a sum, which is 0 of nothing, or an extreme, infinite."""
    dims = dimensions_of(model)

    def is_open(name: str) -> bool:
        return SYMBOL in (dims.get(name) or ())

    ends = (e.proto.op_type for e in model.nodes if any(map(is_open, e.reads)) and not any(map(is_open, e.writes)))
    return all(op in ("ReduceMax", "ReduceMin", "ReduceSum", "Shape") for op in ends)


def _sorted(model: OnnxModel, nodes: Sequence[Entry]) -> OnnxModel:
    outside = {*model.initializers, *(declared.name for declared in model.inputs)}
    return replace(model, nodes=list(sorted_entries(list(nodes), outside)), _expanded={})


def _known(model: OnnxModel) -> Mapping[str, Array]:
    constants = dict(model.initializers)
    for entry in model.nodes:
        found = next((a.t for a in entry.proto.attribute if a.name == "value"), None)
        if entry.proto.op_type == "Constant" and found is not None:
            constants[entry.writes[0]] = tensor_array(found, model.folder, "a constant")
    return constants


def _entry(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> Entry:
    return Entry.of(helper.make_node(op, inputs, [output], name=output, **attributes), OPSET)


class _Writer:
    """Writes nodes under names that are used once."""

    def __init__(self, initializers: dict[str, Array], prefix: str = "places") -> None:
        self.initializers, self.nodes = initializers, list[Entry]()
        self._prefix = f"{WINDOW}/{prefix}"

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self._prefix}/{len(self.nodes)}"
        self.nodes.append(_entry(op, inputs, name, **attributes))
        return name

    def number(self, value: int) -> str:
        return self._constant(np.asarray(value, np.int64), str(value))

    def numbers(self, values: Sequence[int]) -> str:
        return self._constant(np.asarray(values, np.int64), f"list{'.'.join(map(str, values))}")

    def zero(self) -> str:
        return self._constant(np.zeros(1, np.int64), "zero")

    def ends(self, cut: Cut) -> tuple[str, str, str]:
        """The extent of what is cut, and where the slice starts and ends in it, as scalars."""
        axis, zero = self.number(cut.axis), self.number(0)
        extent = self.node("Gather", self.node("Shape", cut.data), axis, axis=0)
        places = []
        for name in (cut.start, cut.end):
            place = self.node("Squeeze", self.node("Cast", name, to=7))
            behind = self.node("Where", self.node("Less", place, zero), self.node("Add", place, extent), place)
            places.append(self.node("Max", self.node("Min", behind, extent), zero))
        return extent, *places  # type: ignore[return-value]

    def count(self, cut: Cut) -> str:
        """How many elements the slice has."""
        _, start, end = self.ends(cut)
        return self.node("Max", self.node("Sub", end, start), self.number(0))

    def _constant(self, value: Array, name: str) -> str:
        name = f"{WINDOW}/{name}"
        self.initializers[name] = value
        return name
