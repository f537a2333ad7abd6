"""One ONNX node and its attributes: what converters and host functions read of it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from onnx import AttributeProto

from autotune.errors import ModelError
from autotune.graph.frontend.source import shortened, sparse_array, tensor_array
from autotune.graph.ir import Array


@dataclass(frozen=True)
class NodeAttributes:
    """An ONNX node of a known opset; `folder` may hold the external data of its tensors.

    `asked` collects the attributes that were looked at, so that one which nobody understands is not passed over; a node
    that is made of another one by `replace` adds to the same.
    """

    proto: onnx.NodeProto
    opset: int
    folder: Path | None
    asked: set[str] = field(default_factory=set, compare=False, kw_only=True)

    @functools.cached_property
    def op(self) -> str:
        return self.proto.op_type

    @property
    def label(self) -> str:
        """How messages call this node."""
        name = self.proto.name or next(iter(self.proto.output), "")
        domain = "" if self.proto.domain in ("", "ai.onnx") else f"{shortened(self.proto.domain)}."
        return f"node '{shortened(name)}' ({domain}{shortened(self.op)})"

    def _attribute(self, name: str, kind: int) -> AttributeProto | None:
        attribute: AttributeProto
        self.asked.add(name)
        for attribute in self.proto.attribute:
            if attribute.name == name:
                if attribute.type != kind:
                    raise ModelError(f"{self.label}: attribute '{name}' has the wrong type")
                return attribute
        return None

    def has(self, name: str) -> bool:
        self.asked.add(name)
        return any(attribute.name == name for attribute in self.proto.attribute)

    def attr_int(self, name: str, default: int) -> int:
        attribute = self._attribute(name, AttributeProto.INT)
        return default if attribute is None else attribute.i

    def attr_flag(self, name: str, *, default: bool = False) -> bool:
        """An integer that must be 0 or 1: what others make of another one differs."""
        value = self.attr_int(name, int(default))
        if value not in (0, 1):
            raise ModelError(f"{self.label}: {name}={value} is neither 0 nor 1")
        return value == 1

    def attr_float(self, name: str, default: float) -> float:
        attribute = self._attribute(name, AttributeProto.FLOAT)
        return default if attribute is None else attribute.f

    def attr_string(self, name: str, default: str) -> str:
        attribute = self._attribute(name, AttributeProto.STRING)
        return default if attribute is None else attribute.s.decode("utf-8", "replace")

    def attr_ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...] | None:
        attribute = self._attribute(name, AttributeProto.INTS)
        if attribute is None:
            return None if default is None else tuple(default)
        return tuple(attribute.ints)

    def attr_floats(self, name: str) -> tuple[float, ...] | None:
        attribute = self._attribute(name, AttributeProto.FLOATS)
        return None if attribute is None else tuple(attribute.floats)

    def attr_strings(self, name: str) -> tuple[str, ...] | None:
        attribute = self._attribute(name, AttributeProto.STRINGS)
        return None if attribute is None else tuple(s.decode("utf-8", "replace") for s in attribute.strings)

    def attr_sparse(self, name: str) -> Array | None:
        """A sparse tensor, written out."""
        found = self._attribute(name, AttributeProto.SPARSE_TENSOR)
        return None if found is None else sparse_array(found.sparse_tensor, self.folder, f"{self.label}: '{name}'")

    def attr_tensor(self, name: str) -> Array | None:
        attribute = self._attribute(name, AttributeProto.TENSOR)
        return None if attribute is None else tensor_array(attribute.t, self.folder, f"{self.label}: '{name}'")
