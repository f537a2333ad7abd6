"""The beginning of a part, what is computed before anything runs on the host, as a model of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from autotune.graph.frontend.entry import Entry
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.part import Part
from autotune.graph.frontend.source import elem_type_of
from autotune.graph.ir import Array
from autotune.tensor.declared import Dim, ModelInput, ModelOutput

OPSET = 17
"""Of the nodes that tell extents."""


class NoModel(Exception):
    """The beginning cannot be told apart from what it became for these types.

    `nodes`: places in the model's table of some without which it might.
    """

    def __init__(self, why: str, nodes: frozenset[int] = frozenset()) -> None:
        super().__init__(why)
        self.nodes = nodes


@dataclass(frozen=True, slots=True)
class Told:
    """A list of integers some of which are extents of the inputs, by their symbols."""

    elements: tuple[int | str, ...]
    dtype: str
    shape: tuple[int, ...]


def beginning_model(
    model: OnnxModel,
    part: Part,
    results: Sequence[str],
    inputs: Mapping[str, tuple[str, tuple[Dim, ...]]],
    known: Mapping[str, Array],
    told: Mapping[str, Told],
) -> OnnxModel:
    """The nodes of a part that lead to some of its values, with these as outputs.

    Args:
        results: names of values that a stage of the part computes.
        inputs: dtype and dimensions of the part's inputs by name, some of them open.
        known: inputs of the part whose values are constants of the model.
        told: inputs of the part that are computed from the shapes of others.

    Raises:
        NoModel: a result comes from nodes that depend on types, or needs what is no tensor of numbers.
    """
    wanted, nodes = set(results), list[Entry]()
    for index in reversed(part.nodes):
        entry = model.nodes[index]
        if not wanted.isdisjoint(entry.writes):
            wanted.update(entry.reads)
            nodes.append(entry)
    written = {name for entry in nodes for name in entry.writes}
    read = [name for name in part.inputs if name in wanted and name not in written]  # they hide initializers
    for name in read:
        if name not in inputs:
            raise NoModel(f"'{name}' is no tensor of numbers")
    initializers = {name: model.initializers[name] for name in wanted - written if name in model.initializers}
    initializers.update((name, known[name]) for name in read if name in known)
    unknown = (wanted - written).difference(read, initializers)
    if unknown or not written.issuperset(results):
        raise NoModel(f"'{min(unknown or set(results) - written)}' comes from nodes that depend on types")
    declared = [ModelInput(name, *inputs[name]) for name in read if name not in known and name not in told]
    telling = _Telling(declared, initializers)
    before = [entry for name in read if name in told for entry in telling.nodes(name, told[name])]
    outputs = {name: ModelOutput(name, None, None) for name in results}
    return OnnxModel(
        model.name, model.folder, tuple(declared), outputs, initializers, [*before, *nodes[::-1]], model.functions
    )


class _Telling:
    """Writes the nodes that compute a list of extents; the constants that they read go to `initializers`."""

    def __init__(self, inputs: Collection[ModelInput], initializers: dict[str, Array]) -> None:
        self._places = {
            dim: (one.name, axis) for one in inputs for axis, dim in enumerate(one.dims or ()) if isinstance(dim, str)
        }
        self._initializers = initializers

    def nodes(self, name: str, told: Told) -> Iterator[Entry]:
        parts = []
        for number, element in enumerate(told.elements):
            part = f"autotune.told/{name}/{number}"
            parts.append(part)
            if isinstance(element, int):
                self._initializers[part] = np.asarray([element], np.int64)
                continue
            if element not in self._places:
                raise NoModel(f"no input has the extents that '{name}' tells")
            source, axis = self._places[element]
            self._initializers[f"{part}/axis"] = np.asarray([axis], np.int64)
            yield _entry("Shape", [source], f"{part}/shape")
            yield _entry("Gather", [f"{part}/shape", f"{part}/axis"], part)
        whole = f"autotune.told/{name}"
        self._initializers[f"{whole}/form"] = np.asarray(told.shape, np.int64)
        yield _entry("Concat", parts, f"{whole}/list", axis=0)
        yield _entry("Reshape", [f"{whole}/list", f"{whole}/form"], f"{whole}/cast")
        yield _entry("Cast", [f"{whole}/cast"], name, to=elem_type_of(told.dtype))


def _entry(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> Entry:
    node: NodeProto = helper.make_node(op, list(inputs), [output], name=output, **attributes)
    return Entry.of(node, OPSET)
