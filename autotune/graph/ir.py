"""The graph IR: operators on logical tensors in SSA form, as immutable values.

Operator names and attributes are those of `autotune.ops` (NCHW, ONNX semantics, no default left open), so a
piece of graph becomes a Workload by renumbering. Constants are NumPy arrays held by reference (possibly views):
no pass copies a weight that it does not change.
"""

from __future__ import annotations

import html
import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from autotune.metadata import ModelMetadata
from autotune.ops.workload import AttrValue
from autotune.tensor import DType

Array = NDArray[Any]
Attrs = tuple[tuple[str, AttrValue], ...]


@dataclass(frozen=True, slots=True)
class Value:
    """One SSA value: its name, dtype (`DType` string) and static shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * DType(self.dtype).bytes

    def __str__(self) -> str:
        return f"%{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Node:
    """One operator application with a single result.

    `origins` names the ONNX nodes that it stands for, the one that it mostly is first. An unnamed ONNX node is called
    after its first output.
    """

    op: str
    inputs: tuple[str, ...]
    output: Value
    attrs: Attrs = ()
    origins: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the value it defines."""
        return self.output.name

    def attr(self, name: str) -> AttrValue:
        return dict(self.attrs)[name]

    def int_tuple(self, name: str) -> tuple[int, ...]:
        """An attribute that holds several integers."""
        value = self.attr(name)
        if not isinstance(value, tuple):
            raise TypeError(f"{self.op}: attribute '{name}' is {value!r}, not a tuple")
        return tuple(int(item) for item in value)

    def number(self, name: str) -> float:
        """An attribute that holds one number."""
        value = self.attr(name)
        if not isinstance(value, (int, float)):
            raise TypeError(f"{self.op}: attribute '{name}' is {value!r}, not a number")
        return float(value)


@dataclass(frozen=True, slots=True)
class Output:
    """A graph output: `name` is what the user sees and never changes, `value` is the SSA value behind it.

    With a `complaint` it is a check instead, which no user sees: a run whose value is not 0 fails with that message.
    Checks come after all other outputs.
    """

    name: str
    value: str
    complaint: str = ""


@dataclass(frozen=True)
class Graph:
    """An SSA graph. `nodes` are in topological order; every name is defined exactly once.

    Passes build a new Graph and share what they leave alone. `metadata` is what the model says about itself, `own` the
    floats of its products where passes have made them f32 (`DType` string).
    """

    name: str
    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    constants: Mapping[str, Array] = field(default_factory=dict)
    metadata: ModelMetadata = field(default=ModelMetadata())
    own: str = "f32"

    def __repr__(self) -> str:
        inputs, outputs = ", ".join(map(str, self.inputs)), ", ".join(output.name for output in self.outputs)
        return f"<Graph {self.name} ({inputs}) -> ({outputs}): {len(self.nodes)} nodes>"

    def _repr_html_(self) -> str:
        style = "overflow: auto; max-height: 30em; font-family: monospace; white-space: pre"
        return f'<pre style="{style}">{html.escape(format_graph(self))}</pre>'

    @cached_property
    def values(self) -> Mapping[str, Value]:
        """Every value by name: inputs, constants, node results."""
        table = {value.name: value for value in self.inputs}
        table.update((name, constant_value(name, array)) for name, array in self.constants.items())
        table.update((node.output.name, node.output) for node in self.nodes)
        return table

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """The node that defines each value (inputs and constants have none)."""
        return {node.output.name: node for node in self.nodes}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each value, each node once. Graph outputs are not counted here."""
        table: dict[str, list[Node]] = {name: [] for name in self.values}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                table[name].append(node)
        return {name: tuple(nodes) for name, nodes in table.items()}

    @cached_property
    def output_values(self) -> frozenset[str]:
        """Names of the values that leave the graph."""
        return frozenset(output.value for output in self.outputs)

    def __str__(self) -> str:
        return format_graph(self)


def constant_value(name: str, array: Array) -> Value:
    """The Value of a constant array."""
    return Value(name, DType.of(array.dtype).value, array.shape)


class FreshNames:
    """Names that are not taken yet: the hint itself, or `hint:1`, `hint:2`, ... `taken` may grow meanwhile."""

    def __init__(self, taken: Container[str]) -> None:
        self._taken = taken
        self._count: dict[str, int] = {}

    def __call__(self, hint: str) -> str:
        if hint not in self._taken:
            return hint
        base, _, number = hint.rpartition(":")
        if not (base and number.isdecimal()):
            base = hint
        count = self._count.get(base, 0) + 1
        while f"{base}:{count}" in self._taken:
            count += 1
        self._count[base] = count
        return f"{base}:{count}"


def format_graph(graph: Graph) -> str:
    """The graph as text, one line per node; constants as types, without their numbers."""
    lines = [f"graph {graph.name}({', '.join(map(str, graph.inputs))}) {{"]
    lines += [f"  const {constant_value(name, array)}" for name, array in graph.constants.items()]
    for node in graph.nodes:
        attrs = "".join(f" {key}={value}" for key, value in node.attrs)
        operands = ", ".join(f"%{name}" for name in node.inputs)
        lines.append(f"  {node.output} = {node.op}({operands}){attrs}")
    results = ", ".join(f"{output.name}=%{output.value}" for output in graph.outputs)
    return "\n".join([*lines, f"  return {results}", "}"])
