"""What a host function sees of one ONNX node, and the registry of host functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

import numpy as np
import onnx

from autotune.errors import ModelError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.ir import Array

HostValue = Union[Array, list[Array], None]
"""What the host holds: a tensor (strings as an array of objects), a sequence of tensors, or an empty optional. A map
is the sequence of its keys and its values."""


class MapColumns(list[Array]):
    """A map: its keys and its values, in one order."""


@dataclass(frozen=True)
class HostNode(NodeAttributes):
    """An ONNX node with the values that it reads, None where an input is omitted."""

    values: tuple[HostValue, ...]

    def array(self, position: int) -> Array:
        found = self.optional(position)
        if found is None:
            raise ModelError(f"{self.label}: input {position} is missing")
        return found

    def optional(self, position: int) -> Array | None:
        found = self.value(position)
        if isinstance(found, list):
            raise ModelError(f"{self.label}: input {position} is a sequence; it must be a tensor")
        return found

    def sequence(self, position: int) -> list[Array]:
        found = self.value(position)
        if not isinstance(found, list) or isinstance(found, MapColumns):
            raise ModelError(f"{self.label}: input {position} is {described(found)}; it must be a sequence")
        return found

    def strings(self, position: int) -> Array:
        found = self.array(position)
        if found.dtype != object:
            raise ModelError(f"{self.label}: input {position} is {described(found)}; it must be a tensor of strings")
        return found

    def value(self, position: int) -> HostValue:
        return self.values[position] if position < len(self.values) else None


def described(value: HostValue) -> str:
    """What a value is, for messages."""
    if value is None:
        return "nothing"
    if isinstance(value, MapColumns):
        return f"a map of {len(value[0])} keys"
    if isinstance(value, list):
        return f"a sequence of {len(value)} tensors"
    return f"a tensor {'string' if value.dtype == object else value.dtype}{list(value.shape)}"


HostFunction = Callable[[HostNode], Sequence[HostValue]]
_FUNCTIONS: dict[str, HostFunction] = {}
_OF_VALUES: dict[str, HostFunction] = {}
_LEARNED: dict[str, HostFunction] = {}
_STANDING: dict[str, HostFunction] = {}  # for several
LEARNED = "ai.onnx.ml"
OWN = "autotune"
"""The domain of operators that stand for several of a model's."""
OF_MAPS = ("CastMap", "CategoryMapper", "DictVectorizer", "ZipMap")
"""Operators of that domain that run on the host whatever their attributes are."""


def on_host(*op_types: str, domain: str = "") -> Callable[[HostFunction], HostFunction]:
    """Register the host function of operators of the default ONNX domain, or of our own."""
    return _registered(_STANDING if domain == OWN else _FUNCTIONS, op_types)


def of_values(*op_types: str) -> Callable[[HostFunction], HostFunction]:
    """Register the host function of operators that run on the host where they read what no program takes: strings,
    sequences, optionals."""
    return _registered(_OF_VALUES, op_types)


def learned_on_host(*op_types: str) -> Callable[[HostFunction], HostFunction]:
    """Register the host function of operators of ai.onnx.ml, for nodes that read or write strings or maps."""
    return _registered(_LEARNED, op_types)


def _registered(table: dict[str, HostFunction], op_types: Sequence[str]) -> Callable[[HostFunction], HostFunction]:
    def register(function: HostFunction) -> HostFunction:
        for op_type in op_types:
            table[op_type] = function
        return function

    return register


def host_function(proto: onnx.NodeProto) -> HostFunction | None:
    """The function of an operator that runs on the host, whatever it reads."""
    if proto.domain == LEARNED:
        return _LEARNED.get(proto.op_type) if has_strings(proto) else None
    if proto.domain == OWN:
        return _STANDING.get(proto.op_type)
    if proto.domain not in ("", "ai.onnx"):
        return None
    return _OF_VALUES["Cast"] if makes_strings(proto) else _FUNCTIONS.get(proto.op_type)


def value_function(proto: onnx.NodeProto) -> HostFunction | None:
    """The function of an operator for strings, sequences and optionals."""
    return _OF_VALUES.get(proto.op_type) if proto.domain in ("", "ai.onnx") else None


def makes_strings(proto: onnx.NodeProto) -> bool:
    """Whether a node writes numbers as strings."""
    return proto.op_type == "Cast" and any(a.name == "to" and a.i == onnx.TensorProto.STRING for a in proto.attribute)


def has_strings(proto: onnx.NodeProto) -> bool:
    """Whether an operator of ai.onnx.ml maps strings, or reads or makes maps."""
    texts = any(a.strings or a.t.data_type == onnx.TensorProto.STRING for a in proto.attribute)
    return texts or proto.op_type in OF_MAPS


def makes_values(proto: onnx.NodeProto) -> bool:
    """Whether a node of ai.onnx.ml writes what is no tensor of numbers."""
    if proto.domain != LEARNED or not has_strings(proto):
        return False
    if proto.op_type in ("CastMap", "DictVectorizer"):
        return any(a.name == "cast_to" and a.s == b"TO_STRING" for a in proto.attribute)
    names = {a.name for a in proto.attribute if a.strings or a.t.data_type == onnx.TensorProto.STRING}
    return proto.op_type in ("CategoryMapper", "ZipMap") or bool(names & {"values_strings", "values_tensor"})


def host_operators() -> tuple[str, ...]:
    """Every operator that may run on the host, whatever it reads."""
    return tuple(sorted({*_FUNCTIONS, *_STANDING}))


def run_host(node: NodeAttributes, values: Sequence[HostValue]) -> Sequence[HostValue]:
    """The results of a host operator, one per output of its schema: arrays are C-contiguous.

    Raises:
        InputError: the data makes no sense for the operator.
        ModelError: the node does not.
    """
    called = HostNode(node.proto, node.opset, node.folder, tuple(values))
    function = host_function(node.proto) or value_function(node.proto)
    if function is None:
        raise ModelError(f"{node.label} is no host operator")
    with np.errstate(all="ignore"):
        results = function(called)
    return [_contiguous(a) for a in results]


def _contiguous(value: HostValue) -> HostValue:
    if not isinstance(value, np.ndarray) or value.flags.c_contiguous:
        return value
    return np.ascontiguousarray(value)
