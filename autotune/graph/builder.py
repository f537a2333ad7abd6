"""GraphBuilder: where a graph is put together, value by value, with types inferred and checked on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.graph.infer import infer
from autotune.graph.ir import Array, Attrs, FreshNames, Graph, Node, Output, Value, constant_value
from autotune.metadata import ModelMetadata
from autotune.ops.workload import AttrValue


class GraphBuilder:
    """Collects inputs, constants and nodes in topological order. The only mutable form of a graph."""

    def __init__(self, name: str, metadata: ModelMetadata | None = None) -> None:
        self.name = name
        self._metadata = metadata or ModelMetadata()
        self.values: dict[str, Value] = {}
        self.constants: dict[str, Array] = {}
        self._fresh = FreshNames(self.values)
        self._inputs: list[Value] = []
        self._nodes: list[Node] = []
        self._checks: list[Output] = []

    def input(self, value: Value) -> str:
        """Declare a graph input; its name is kept as it is."""
        self._inputs.append(value)
        self.values[value.name] = value
        return value.name

    def constant(self, array: Array, hint: str = "const") -> str:
        """Add a constant by reference and return the name of its value."""
        name, array = self._fresh(hint), np.asarray(array)  # NumPy makes scalars of arrays without axes
        self.constants[name] = array
        self.values[name] = constant_value(name, array)
        return name

    def emit(self, op: str, inputs: Sequence[str], hint: str = "", origin: str = "", **attrs: AttrValue) -> str:
        """Append a node and return the name of its result. Raises WorkloadError if the types do not fit."""
        dtype, shape = infer(op, [self.values[name] for name in inputs], attrs)
        value = Value(self._fresh(hint or op), dtype, shape)
        self._nodes.append(Node(op, tuple(inputs), value, make_attrs(**attrs), (origin,) if origin else ()))
        self.values[value.name] = value
        return value.name

    def check(self, name: str, complaint: str) -> None:
        """Let every run fail with this message where the scalar `name` is not 0."""
        self._checks.append(Output(f"check {len(self._checks)}", name, complaint))

    def build(self, outputs: Sequence[Output]) -> Graph:
        every = (*outputs, *self._checks)
        inputs, nodes = tuple(self._inputs), tuple(self._nodes)
        return Graph(self.name, inputs, nodes, every, dict(self.constants), self._metadata)


def make_attrs(**attrs: AttrValue) -> Attrs:
    """Attributes in canonical form: sorted by name."""
    return tuple(sorted(attrs.items()))
