"""Caches that grow: inputs that come out again with new rows behind the old ones, as exporters write them by Concat.

The same model takes caches that have room for the new rows, which it writes there. So all caches of a step have one
length, past and new rows together, and it may be padded like any other open dimension (`buckets`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from autotune.graph.frontend.entry import Entry
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.source import elem_type_of
from autotune.graph.ir import Array
from autotune.tensor.declared import Dim, ModelInput

OPSET = 24
"""Of the nodes that write to caches."""


@dataclass(frozen=True)
class Cache:
    """
    Attributes:
        past, present: names of the input and of the output.
        new: name of the rows that are appended.
        axis: along which it grows.
        joint: place of the Concat in the model's table.
        shapes: places of the nodes that ask for the shape of the input.
    """

    past: str
    present: str
    new: str
    axis: int
    joint: int
    shapes: tuple[int, ...]


@dataclass(frozen=True)
class Caches:
    """All the caches of a model, each of which has `symbol` old rows."""

    symbol: str
    each: tuple[Cache, ...]


def caches_of(model: OnnxModel) -> Caches | None:
    """The caches that grow; None where there are none, or something else is done with old rows."""
    readers: dict[str, list[tuple[int, int]]] = {}
    for index, entry in enumerate(model.nodes):
        for name in entry.reads:
            position = list(entry.proto.input).index(name) if name in entry.proto.input else -1
            readers.setdefault(name, []).append((index, position))
    symbols = [d for i in model.inputs for d in i.dims or () if isinstance(d, str)]
    for symbol in dict.fromkeys(symbols):
        holders = [declared for declared in model.inputs if symbol in (declared.dims or ())]
        found = [_cache(model, readers, declared, symbol) for declared in holders]
        caches = tuple(cache for cache in found if cache is not None)
        if len(caches) == len(holders):
            return Caches(symbol, caches)
    return None


def _cache(
    model: OnnxModel, readers: dict[str, list[tuple[int, int]]], declared: ModelInput, symbol: str
) -> Cache | None:
    """What an input is as a cache."""
    dims = declared.dims or ()
    names, joints, shapes = [declared.name], [], []
    if dims.count(symbol) != 1 or dims.index(symbol) == 0 or not declared.is_tensor:
        return None
    for name in names:  # grows: the same under other names
        if name in model.outputs:
            return None
        for index, position in readers.get(name, ()):
            node = model.nodes[index].proto
            if node.op_type == "Identity" or (node.op_type == "Concat" and len(node.input) == 1):
                names.append(node.output[0])
            elif node.op_type == "Shape":
                shapes.append(index)
            elif node.op_type == "Concat" and position == 0 and len(node.input) == 2:
                joints.append(index)
            else:
                return None
    if len(joints) != 1:
        return None
    node, axis = model.nodes[joints[0]].proto, dims.index(symbol)
    along = model.attributes(joints[0]).attr_int("axis", 0) % len(dims)
    present = _given_out(model, readers, node.output[0], elem_type_of(declared.dtype))
    if along != axis or present is None or node.input[1] in names:
        return None
    return Cache(declared.name, present, node.input[1], axis, joints[0], tuple(shapes))


def _given_out(model: OnnxModel, readers: dict[str, list[tuple[int, int]]], name: str, kind: int) -> str | None:
    """The output that a value is, itself or cast to what it is already."""
    if name in model.outputs:
        return name
    for index, _ in readers.get(name, ()):
        entry = model.nodes[index]
        plain = entry.proto.op_type == "Identity" or (
            entry.proto.op_type == "Cast" and model.attributes(index).attr_int("to", 0) == kind
        )
        if plain and entry.writes[0] in model.outputs:
            return entry.writes[0]
    return None


def with_room(model: OnnxModel, caches: Caches, rows: int | str, length: str) -> OnnxModel:
    """The model whose caches come in as long as they go out: the last rows are written to, whatever is in them.

    Args:
        rows: that a run appends; the symbol of a dimension of an input, where that is as long.
        length: symbol of old and new rows together.
    """
    initializers: dict[str, Array] = dict(model.initializers)
    nodes: list[Entry] = []

    def write(op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        nodes.append(Entry.of(helper.make_node(op, inputs, [name], name=name, **attributes), OPSET))
        return name

    def constant(value: object, name: str) -> str:
        initializers[name] = np.asarray(value, np.int64)
        return name

    dims = {declared.name: declared.dims or () for declared in model.inputs}
    first = caches.each[0]
    extents = write("Shape", [first.past], "autotune.cache/extents", start=first.axis, end=first.axis + 1)
    if isinstance(rows, int):
        count = constant([rows], "autotune.cache/rows")
    else:
        name, axis = next((i.name, i.dims.index(rows)) for i in model.inputs if i.dims and rows in i.dims)
        count = write("Shape", [name], "autotune.cache/rows", start=axis, end=axis + 1)
    end = write("Sub", [extents, count], "autotune.cache/end")
    begins: dict[Dim, str] = {}
    for lines in dict.fromkeys(dims[cache.past][0] for cache in caches.each):  # batches, or keys and values
        batch = constant([lines], f"autotune.cache/batch{lines}")
        begins[lines] = write("Expand", [end, batch], f"autotune.cache/begin{lines}")
    joints = {cache.joint: cache for cache in caches.each}
    asking = {index: cache for cache in caches.each for index in cache.shapes}
    for index, entry in enumerate(model.nodes):
        if index in joints:
            cache, proto = joints[index], entry.proto
            inputs = [proto.input[0], cache.new, begins[dims[cache.past][0]]]
            write("TensorScatter", inputs, proto.output[0], axis=cache.axis, mode="linear")
        elif index in asking:  # for the old rows alone
            name, attributes, rank = entry.proto.output[0], model.attributes(index), len(dims[asking[index].past])
            places = range(rank)[attributes.attr_int("start", 0) : attributes.attr_int("end", rank)]
            proto = onnx.NodeProto()
            proto.CopyFrom(entry.proto)
            proto.output[0] = f"{name}/with-room"
            nodes.append(Entry.of(proto, entry.opset))
            there = constant([int(n == asking[index].axis) for n in places], f"{name}/there")
            write("Sub", [proto.output[0], write("Mul", [there, count], f"{name}/rows")], name)
        else:
            nodes.append(entry)
    roomy = tuple(
        replace(declared, dims=tuple(length if dim == caches.symbol else dim for dim in declared.dims or ()))
        if caches.symbol in (declared.dims or ()) else declared
        for declared in model.inputs
    )  # fmt: skip
    return replace(model, inputs=roomy, initializers=initializers, nodes=nodes, _expanded={})
