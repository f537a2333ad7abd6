"""A pass's sweep as where products of quantised operands are written, in place of a node."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Array, Node, Value
from autotune.graph.passes.sweep import Sweep
from autotune.ops.workload import AttrValue


@dataclass(frozen=True, slots=True)
class Rewriting:
    """New nodes stand for `node`."""

    sweep: Sweep
    node: Node

    def emit(self, op: str, *inputs: str, **attrs: AttrValue) -> str:
        return self.sweep.emit(self.node, op, inputs, **attrs)

    def constant(self, array: Array) -> str:
        return self.sweep.constant(array, self.node.name)

    def array(self, name: str) -> Array | None:
        return self.sweep.array(name)

    def value(self, name: str) -> Value:
        return self.sweep.values[name]
