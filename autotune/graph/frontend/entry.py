"""Nodes of a model as entries of a table, and their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx
from onnx import AttributeProto

from autotune.errors import ModelError
from autotune.graph.order import topological_order


@dataclass(frozen=True, slots=True)
class Entry:
    """One ONNX node of the table.

    Attributes:
        reads: names of the values it needs: its inputs, and what its subgraphs read from around them.
    """

    proto: onnx.NodeProto
    opset: int
    reads: tuple[str, ...]

    @staticmethod
    def of(proto: onnx.NodeProto, opset: int) -> Entry:
        names = [name for name in proto.input if name]
        for attribute in proto.attribute:
            if attribute.type == AttributeProto.GRAPH:
                names += free_names(attribute.g)
        own = onnx.NodeProto()  # a part of the model's own message would keep all of that, weights included
        own.CopyFrom(proto)
        return Entry(own, opset, tuple(dict.fromkeys(names)))

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(name for name in self.proto.output if name)


def sorted_entries(entries: Sequence[Entry], defined: set[str]) -> list[Entry]:
    """The nodes in topological order, stable. Raises ModelError on undefined inputs, duplicates and cycles."""
    producer: dict[str, int] = {}
    for index, entry in enumerate(entries):
        for name in entry.writes:
            if name in defined or name in producer:
                raise ModelError(f"'{name}' is defined twice in the model")
            producer[name] = index
    dependencies: list[set[int]] = []
    for entry in entries:
        missing = {name for name in entry.reads if name not in defined}
        for name in missing - producer.keys():
            raise ModelError(f"node '{entry.proto.name}' ({entry.proto.op_type}) reads '{name}', which nothing defines")
        dependencies.append({producer[name] for name in missing})
    order = topological_order(dependencies)
    if len(order) != len(dependencies):
        stuck = entries[min(set(range(len(dependencies))).difference(order))].proto
        raise ModelError(f"the model has a cycle through node '{stuck.name}' ({stuck.op_type})")
    return [entries[index] for index in order]


def free_names(graph: onnx.GraphProto) -> Iterable[str]:
    """What a subgraph reads from around it. Subgraphs nest no deeper than protobuf messages may."""
    inner = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    inner.update(name for node in graph.node for name in node.output)
    reads = [name for node in graph.node for name in Entry.of(node, 0).reads]
    return [name for name in (*reads, *(info.name for info in graph.output)) if name and name not in inner]
