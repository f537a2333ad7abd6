"""Workload: what one kernel computes, as a canonical DAG of operators with shapes and dtypes.

No values, no layouts, no schedule. Two kernels with the same workload are interchangeable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.arguments import checked
from autotune.errors import WorkloadError

AttrScalar = int | float | bool | str
AttrValue = AttrScalar | tuple[AttrScalar, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class WorkloadInput:
    """`constant` marks weights: known at compile time, packed once."""

    type: TensorType
    constant: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadNode:
    """One operator; `inputs` are value numbers, attributes are sorted by name and complete."""

    op: str
    inputs: tuple[int, ...]
    attrs: tuple[tuple[str, AttrValue], ...] = ()

    @staticmethod
    def make(op: str, inputs: Sequence[int], **attrs: AttrValue | Sequence[AttrScalar]) -> WorkloadNode:
        """A node in canonical form: attributes sorted, sequences as tuples."""
        return WorkloadNode(op, tuple(inputs), tuple(sorted((k, _tuples(v)) for k, v in attrs.items())))

    def attr(self, name: str) -> Any:
        """The attribute's value.

        Raises:
            WorkloadError: when the operator has none of that name.
        """
        for key, value in self.attrs:
            if key == name:
                return value
        known = ", ".join(k for k, _ in self.attrs) or "none"
        raise WorkloadError(f"{self.op} has no attribute {name}; it has {known}")


@dataclass(frozen=True, slots=True)
class Workload:
    """Values are numbered: inputs first (0..n-1), then one per node; nodes are in topological order."""

    inputs: tuple[WorkloadInput, ...]
    nodes: tuple[WorkloadNode, ...]
    outputs: tuple[int, ...]
    _key: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for position, node in enumerate(self.nodes):
            limit = len(self.inputs) + position
            if any(not 0 <= i < limit for i in node.inputs):
                raise WorkloadError(f"{node.op} (node {position}) reads a value that does not exist yet: {node.inputs}")
        if not self.outputs or any(not 0 <= o < len(self.inputs) + len(self.nodes) for o in self.outputs):
            raise WorkloadError(f"workload outputs {self.outputs} name no value")

    def to_json(self) -> str:
        """Canonical text: equal workloads give equal bytes."""
        data = {
            "inputs": [[i.type.dtype, list(i.type.shape), i.constant] for i in self.inputs],
            "nodes": [[n.op, list(n.inputs), dict(n.attrs)] for n in self.nodes],
            "outputs": list(self.outputs),
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"))

    @staticmethod
    @checked
    def from_json(text: str) -> Workload:
        """The inverse of `to_json`.

        Raises:
            WorkloadError: when the text is not a workload.
        """
        try:
            data = json.loads(text)
            inputs = tuple(WorkloadInput(TensorType(d, tuple(s)), bool(c)) for d, s, c in data["inputs"])
            nodes = tuple(
                WorkloadNode(op, tuple(ins), tuple(sorted((k, _tuples(v)) for k, v in attrs.items())))
                for op, ins, attrs in data["nodes"]
            )
            return Workload(inputs, nodes, tuple(data["outputs"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WorkloadError(f"not a workload: {error}") from error

    @property
    def key(self) -> str:
        """16 hex digits that name this workload in records. Remembered: it is asked for again and again."""
        if not self._key:
            object.__setattr__(self, "_key", hashlib.sha256(self.to_json().encode()).hexdigest()[:16])
        return self._key

    @property
    def anchor(self) -> WorkloadNode | None:
        """The operator that decides the template: a product, which may choose its matrices by a gather before it, or
        the first one that is not elementwise; None when all are."""
        from autotune.ops.registry import has_trait, lookup
        from autotune.ops.traits import Trait

        found = [n for n in self.nodes if not lookup(n.op).elementwise]
        return next((n for n in found if has_trait(n.op, Trait.LEADS_LAYOUT)), found[0] if found else None)

    def source(self, value: int) -> int:
        """The value that one conversion or several give in another dtype; the value itself where it is none."""
        while value >= len(self.inputs) and (node := self.nodes[value - len(self.inputs)]).op == "cast":
            value = node.inputs[0]
        return value

    def is_constant(self, value: int) -> bool:
        """Whether a value is a constant operand, as it is or converted."""
        given = self.source(value)
        return given < len(self.inputs) and self.inputs[given].constant

    @property
    def anchor_key(self) -> str:
        """The key of the anchor alone: kernels that differ only in prologue and epilogue share it (transfer)."""
        return self.anchor_part.key

    @property
    def anchor_part(self) -> Workload:
        """The anchor alone, without prologue and epilogue; all of it when every operator is elementwise."""
        anchor = self.anchor
        if anchor is None:
            return self
        types = self.types()
        inputs = tuple(self.inputs[i] if i < len(self.inputs) else WorkloadInput(types[i]) for i in anchor.inputs)
        alone = replace(anchor, inputs=tuple(range(len(inputs))))
        return Workload(inputs, (alone,), (len(inputs),))

    def types(self) -> tuple[TensorType, ...]:
        """Type of every value, inputs first.

        Raises:
            WorkloadError: for impossible shapes, dtypes or attributes, or an unknown operator.
        """
        from autotune.ops.registry import value_types

        return value_types(self)

    @property
    def flops(self) -> int:
        """Operations of the mathematical definition: 2 per multiply-add, 1 per other arithmetic."""
        from autotune.ops.registry import flops

        return flops(self)

    def __repr__(self) -> str:
        return f"<Workload {self.describe()}>"

    def describe(self) -> str:
        """One line for people, which `parse_workload` reads, too."""
        from autotune.ops.describe import describe

        return describe(self)


def _tuples(value: Any) -> AttrValue:
    return tuple(value) if isinstance(value, list) else value
