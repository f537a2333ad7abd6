"""The model that runs with an open dimension padded: masks where its operators would read the padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from autotune.graph.frontend.buckets.analysis import Mask, Padding, Told
from autotune.graph.frontend.buckets.facts import number_of, terms_of
from autotune.graph.frontend.entry import Entry
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.source import elem_type_of
from autotune.graph.ir import Array
from autotune.tensor.declared import ModelInput
from autotune.tensor.dtype import DType

OPSET = 17
"""Of the nodes that make and apply masks."""


def valid_name(symbol: str) -> str:
    """The input of a padded model, an i64 scalar, that tells how much of a dimension is no padding."""
    return f"autotune.valid/{symbol}"


def padded_model(model: OnnxModel, padding: Padding) -> OnnxModel:
    """The same model but for masks, and for an input `valid_name(symbol)`; the model itself where it has no `ends`."""
    if not padding.ends:
        return model
    masks, zeroed = _Masks(model, padding.symbol), {**padding.unread, **padding.zeroed}
    nodes: list[Entry] = [*masks.take()]
    for index, entry in enumerate(model.nodes):
        proto = onnx.NodeProto()
        proto.CopyFrom(entry.proto)
        for position, name in enumerate(entry.proto.input):
            if (index, position) in padding.masks:
                proto.input[position] = masks.apply(name, padding.masks[index, position], f"{name}/{index}.{position}")
                nodes += masks.take()
            if (index, position) in padding.told:
                proto.input[position] = masks.numbers(padding.told[index, position])
                nodes += masks.take()
        if index in padding.picked:
            axis, told = padding.picked[index]
            places = masks.numbers(told)
            nodes += masks.take()
            proto = helper.make_node("Gather", [proto.input[0], places], proto.output, name=proto.name, axis=axis)
        for number, name in enumerate(entry.proto.output):
            if name in zeroed:
                proto.output[number] = _computed(name, padding)
        nodes.append(Entry.of(proto, entry.opset))
        for name in entry.writes:
            if name in zeroed:
                masks.apply(_computed(name, padding), zeroed[name], name)
                nodes += masks.take()
    inputs = (*model.inputs, ModelInput(valid_name(padding.symbol), "i64", ()))
    return replace(model, inputs=inputs, initializers=masks.initializers, nodes=nodes, _expanded={})


def _computed(name: str, padding: Padding) -> str:
    """What a value is called before its padding is made zero."""
    return f"{name}/as-computed/{padding.symbol}"


class _Masks:
    """Writes the nodes of masks; `take` hands over those written since the last call."""

    def __init__(self, model: OnnxModel, symbol: str) -> None:
        self.initializers: dict[str, Array] = dict(model.initializers)
        self._symbol = symbol
        self._prefix = f"autotune.mask/{symbol}"
        self._written: list[Entry] = []
        self._masks: dict[tuple[int, int, int], str] = {}
        self._rows: dict[int, str] = {}
        self._numbers: dict[Told, str] = {}
        self._extents: dict[str, str] = {}
        self._inputs = model.inputs
        zero, one = (self._constant(np.int64(n), str(n)) for n in (0, 1))
        places = self._node("Range", zero, self._extent(symbol), one, name="places")
        self._rows[0] = self._node("Less", places, valid_name(symbol), name="row")

    def take(self) -> Iterator[Entry]:
        written, self._written = self._written, []
        yield from written

    def apply(self, name: str, mask: Mask, result: str) -> str:
        """Replace the padding of a value."""
        fill = self._constant(np.asarray(mask.fill, DType(mask.dtype).numpy), f"{mask.fill}.{mask.dtype}")
        for number, (axis, behind) in enumerate(zip(mask.axes, mask.behind)):
            last = number == len(mask.axes) - 1
            found = result if last else f"{result}/{axis}"
            self._write("Where", (self._mask(mask.rank, axis, behind), name, fill), found)
            name = found
        return name

    def numbers(self, told: Told) -> str:
        """Extents without padding: of the open dimension, and what each element adds; of others, what they are."""
        if told not in self._numbers:
            prefix = f"numbers{len(self._numbers)}"
            found = self._constant(np.asarray([number_of(e) for e in told.elements], np.int64), f"{prefix}.more")
            symbols = dict.fromkeys(symbol for extent in told.elements for symbol in terms_of(extent))
            for n, symbol in enumerate(symbols):
                extent = valid_name(symbol) if symbol == self._symbol else self._extent(symbol)
                factors = np.asarray([terms_of(e).get(symbol, 0) for e in told.elements], np.int64)
                term = self._node("Mul", extent, self._constant(factors, f"{prefix}.{n}"), name=f"{prefix}.{n}a")
                found = self._node("Add", found, term, name=f"{prefix}.{n}b")
            shape = self._constant(np.asarray(told.shape, np.int64), f"{prefix}.shape")
            found = self._node("Reshape", found, shape, name=f"{prefix}.c")
            self._numbers[told] = self._node("Cast", found, name=f"{prefix}.d", to=elem_type_of(told.dtype))
        return self._numbers[told]

    def _extent(self, symbol: str) -> str:
        """That of an open dimension, with its padding, where an input has it."""
        if symbol not in self._extents:
            source, axis = next(
                (declared.name, declared.dims.index(symbol))
                for declared in self._inputs
                if declared.dims is not None and symbol in declared.dims
            )
            prefix = f"extent{len(self._extents)}"
            extents = self._node("Shape", source, name=f"{prefix}.a")
            place = self._constant(np.int64(axis), f"{prefix}.axis")
            self._extents[symbol] = self._node("Gather", extents, place, name=prefix, axis=0)
        return self._extents[symbol]

    def _row(self, behind: int) -> str:
        """Whether an element is no padding, along a dimension that has so many behind it."""
        if behind not in self._rows:
            more = self._constant(np.ones(behind, np.bool_), f"{behind}.behind")
            self._rows[behind] = self._node("Concat", self._rows[0], more, name=f"row{behind}", axis=0)
        return self._rows[behind]

    def _mask(self, rank: int, axis: int, behind: int) -> str:
        """Whether an element is no padding, along one of so many dimensions."""
        place = rank, axis, behind
        if place not in self._masks:
            shape = self._constant(np.asarray([1] * axis + [-1] + [1] * (rank - axis - 1), np.int64), f"{axis}of{rank}")
            name = f"along{axis}of{rank}" + (f".{behind}" if behind else "")
            self._masks[place] = self._node("Reshape", self._row(behind), shape, name=name)
        return self._masks[place]

    def _constant(self, value: Array | np.generic, name: str) -> str:
        name = f"{self._prefix}/{name}"
        self.initializers[name] = np.asarray(value)
        return name

    def _node(self, op: str, *inputs: str, name: str, **attributes: Any) -> str:
        return self._write(op, inputs, f"{self._prefix}/{name}", **attributes)

    def _write(self, op: str, inputs: tuple[str, ...], name: str, **attributes: Any) -> str:
        self._written.append(Entry.of(helper.make_node(op, inputs, [name], name=name, **attributes), OPSET))
        return name
