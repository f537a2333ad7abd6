"""What a host function sees of one ONNX node, and the registry of host functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from autotune.errors import ModelError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.ir import Array


@dataclass(frozen=True)
class HostNode(NodeAttributes):
    """An ONNX node with the arrays that it reads, None where an input is omitted."""

    arrays: tuple[Array | None, ...]

    def array(self, position: int) -> Array:
        found = self.optional(position)
        if found is None:
            raise ModelError(f"{self.label}: input {position} is missing")
        return found

    def optional(self, position: int) -> Array | None:
        return self.arrays[position] if position < len(self.arrays) else None


HostFunction = Callable[[HostNode], Sequence[Array]]
_FUNCTIONS: dict[str, HostFunction] = {}


def on_host(*op_types: str) -> Callable[[HostFunction], HostFunction]:
    """Register the host function of operators of the default ONNX domain."""

    def register(function: HostFunction) -> HostFunction:
        for op_type in op_types:
            _FUNCTIONS[op_type] = function
        return function

    return register


def host_function(proto: onnx.NodeProto) -> HostFunction | None:
    return _FUNCTIONS.get(proto.op_type) if proto.domain in ("", "ai.onnx") else None


def host_operators() -> tuple[str, ...]:
    """Every operator that may run on the host."""
    return tuple(sorted(_FUNCTIONS))


def run_host(
    node: NodeAttributes, arrays: Sequence[Array | None], compiled: Mapping[str, HostFunction] | None = None
) -> Sequence[Array]:
    """The results of a host operator, one per output of its schema: new arrays, C-contiguous.

    Args:
        compiled: functions that replace registered ones, by operator.

    Raises:
        InputError: the data makes no sense for the operator.
        ModelError: the node does not.
    """
    function = host_function(node.proto)
    if function is None:
        raise ModelError(f"{node.label} is no host operator")
    called = HostNode(node.proto, node.opset, node.folder, tuple(arrays))
    if compiled is not None and node.proto.op_type in compiled:
        results = compiled[node.proto.op_type](called)
    else:
        with np.errstate(all="ignore"):
            results = function(called)
    return [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in results]
