"""Programs of graphs that are known: those that a file holds, or that are to go into one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from autotune.compiler.compile import CompiledModel
from autotune.compiler.graph_key import graph_key, named, names_of
from autotune.compiler.weights import PackedWeights
from autotune.graph import Graph

Names = tuple[tuple[str, ...], tuple[str, ...]]


class Programs(Protocol):
    """Asked before a graph is optimised and compiled, and told of what came of it. Several threads may call."""

    def recall(self, graph: Graph) -> CompiledModel | None:
        """Its program, None where nobody has one."""

    def keep(self, graph: Graph, program: CompiledModel) -> None:
        """That was made of it."""


@dataclass(frozen=True)
class Made:
    """A program, and the names of what its graph takes and gives."""

    program: CompiledModel
    names: Names


@dataclass
class Recorder:
    """All programs that are made, by the keys of their graphs."""

    made: dict[str, Made] = field(default_factory=dict)
    _weights: PackedWeights = field(default_factory=PackedWeights)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def recall(self, graph: Graph) -> CompiledModel | None:
        found = self.made.get(graph_key(graph, self._weights.contents))
        return None if found is None else named(found.program, found.names, graph)

    def keep(self, graph: Graph, program: CompiledModel) -> None:
        with self._lock:
            self.made.setdefault(graph_key(graph, self._weights.contents), Made(program, names_of(graph)))


class Known:
    """The programs of a file.

    Args:
        made: by the key of a graph, what gives its program and the names that it has there.
        weights: tells arrays apart, knows those of the file.
    """

    def __init__(self, made: Mapping[str, Callable[[], Made]], weights: PackedWeights) -> None:
        self._made, self._weights = made, weights

    def recall(self, graph: Graph) -> CompiledModel | None:
        give = self._made.get(graph_key(graph, self._weights.contents))
        if give is None:
            return None
        made = give()
        return named(made.program, made.names, graph)

    def keep(self, graph: Graph, program: CompiledModel) -> None:
        """The session has it: the file stays as it is."""
