"""No-ops: drop nodes that give back one of their operands.

requires: a verified graph.    ensures: no node of the kinds below is left.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.infer import REDUCTIONS
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep
from autotune.tensor import DType

_NEUTRAL = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0, "pow": 1.0}
_INVOLUTIONS = frozenset({"neg", "not"})
_IDEMPOTENT = frozenset({"relu", "abs", "floor", "ceil"})


def remove_noops(graph: Graph) -> Graph:
    """`x * 1`, `x + 0`, reshape to the same shape, transpose by the identity, relu of relu, ... --> `x`."""
    sweep = Sweep(graph)
    for node in sweep:
        source = _unchanged_operand(sweep, node)
        if source is not None:
            sweep.replace(node, source)
        elif node.op == "cast" and (inner := _widened(sweep, node)) is not None:
            sweep.replace(node, sweep.emit(node, "cast", (inner,), to=node.output.dtype))
        elif node.op in REDUCTIONS and sweep.values[node.inputs[0]].size == node.output.size > 0:
            sweep.replace(node, sweep.emit(node, "reshape", node.inputs, shape=node.output.shape))
        else:
            sweep.keep(node)
    return sweep.result()


def _unchanged_operand(sweep: Sweep, node: Node) -> str | None:
    """The operand that the node passes through unchanged, or None."""
    if node.op in _NEUTRAL:
        return _beside_neutral(sweep, node)
    if node.op == "where":
        return _chosen(sweep, node)
    if node.op in _INVOLUTIONS:
        producer = made_by(sweep, node.inputs[0], node.op)
        return producer.inputs[0] if producer is not None else None
    if not node.inputs:
        return None
    first, attrs = sweep.values[node.inputs[0]], dict(node.attrs)
    if (first.dtype, first.shape) != (node.output.dtype, node.output.shape):
        return None
    producer = sweep.producers.get(first.name)
    unchanged = (
        node.op in ("reshape", "cast", "expand")  # of the same type, so they do nothing
        or (node.op == "concat" and len(node.inputs) == 1)
        or (node.op == "pad" and not any(node.int_tuple("pads")))
        or (node.op == "slice" and attrs["step"] == (1,) * len(first.shape))
        or (node.op == "transpose" and attrs["perm"] == tuple(range(len(first.shape))))
        or (node.op == "clip" and attrs["min"] == -math.inf and attrs["max"] == math.inf)
        or (node.op == "max_pool" and not any(k - 1 for k in node.int_tuple("kernel")))
        or (node.op in _IDEMPOTENT and producer is not None and producer.op == node.op)
    )
    return first.name if unchanged else None


def _widened(sweep: Sweep, node: Node) -> str | None:
    """The operand of a cast before this one that loses nothing."""
    before = made_by(sweep, node.inputs[0], "cast")
    if before is None:
        return None
    narrow, wide = (DType(sweep.values[name].dtype) for name in (before.inputs[0], before.name))
    if narrow in (DType.i64, DType.u64) or (wide is DType.bf16) or wide.bytes < narrow.bytes or narrow.is_storage:
        return None
    exact = wide.is_float if narrow is DType.bf16 else np.can_cast(narrow.numpy, wide.numpy, "safe")
    return before.inputs[0] if exact else None


def _chosen(sweep: Sweep, node: Node) -> str | None:
    """The side of a `where` that a constant condition takes everywhere, or both sides, when it is not broadcast."""
    if node.inputs[1] == node.inputs[2]:
        return node.inputs[1] if sweep.values[node.inputs[1]].shape == node.output.shape else None
    condition = sweep.array(node.inputs[0])
    if condition is None or not condition.size or bool(condition.any()) != bool(condition.all()):
        return None
    side = sweep.values[node.inputs[1 if condition.any() else 2]]
    return side.name if side.shape == node.output.shape else None


def _beside_neutral(sweep: Sweep, node: Node) -> str | None:
    """x, for `x op neutral` (and `neutral op x` where that is the same) when x is not broadcast."""
    for position in (0, 1) if node.op in ("add", "mul") else (1,):
        array, other = sweep.array(node.inputs[position]), sweep.values[node.inputs[1 - position]]
        same_type = (other.dtype, other.shape) == (node.output.dtype, node.output.shape)
        if array is not None and same_type and array.size and bool(np.all(array == _NEUTRAL[node.op])):
            return other.name
    return None
