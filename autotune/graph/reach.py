"""Which positions of its operands an operator reads: as many as are wanted of its result, or up to an end from data.

It follows from the one definition of each operator, as types do (`infer`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from autotune.graph.ir import Attrs, Node, Value
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.ops.registry import compute_def
from autotune.tensor.expr import Binary, Expr, Read, Var
from autotune.tensor.guards import guarded_reads
from autotune.tensor.stage import Stage

Limits = frozenset[tuple[str, int]]
"""Of the positions that are read along a dimension: ("axis", n), no others than those wanted along dimension n of the
result; ("end", n), none at or beyond what operand n holds."""

Reach = tuple[tuple[Limits, ...], ...]
"""Limits per operand and dimension."""

_NONE: Limits = frozenset()


def reach(node: Node, values: Mapping[str, Value]) -> Reach:
    """What a node reads of its operands."""
    types = tuple(TensorType(values[name].dtype, values[name].shape) for name in node.inputs)
    return _reach(node.op, types, node.attrs)


@functools.lru_cache(maxsize=4096)
def _reach(op: str, types: tuple[TensorType, ...], attrs: Attrs) -> Reach:
    node = WorkloadNode(op, tuple(range(len(types))), attrs)
    definition = compute_def(Workload(tuple(map(WorkloadInput, types)), (node,), (len(types),)))
    numbers = {t.name: n for n, t in enumerate(definition.inputs)}
    found: dict[str, list[Limits]] = {}
    for name, tensor in zip(definition.outputs, definition.output_tensors, strict=True):
        found[name] = [frozenset({("axis", n)}) for n in range(len(tensor.shape))]
    for stage in reversed(definition.stages):
        own = _axes(stage, found)
        for body in stage.body:
            for read, conditions in guarded_reads(body):
                limits = [own.get(i.name, _NONE) | _ends(i, conditions, numbers) if isinstance(i, Var) else _NONE
                          for i in read.indices]  # fmt: skip
                known = found.get(read.tensor.name)
                found[read.tensor.name] = limits if known is None else [a & b for a, b in zip(known, limits)]
    return tuple(tuple(found.get(t.name, [_NONE] * len(t.shape))) for t in definition.inputs)


def _axes(stage: Stage, found: Mapping[str, list[Limits]]) -> dict[str, Limits]:
    """Limits of the axes of a stage by what is wanted of its results; none of a stage that is more than a nest."""
    if stage.extern is not None or stage.scan_axis is not None or stage.recurrence is not None:
        return {}
    wanted = [found[t.name] for t in stage.outputs if t.name in found]
    return {axis.name: frozenset.intersection(*limits) for axis, *limits in zip(stage.axes, *wanted)} if wanted else {}


def _ends(index: Expr, conditions: tuple[Expr, ...], numbers: Mapping[str, int]) -> Limits:
    """The operands that conditions say the index stays below."""
    below = [c.b for c in conditions if isinstance(c, Binary) and c.op == "lt" and c.a == index]
    return frozenset(("end", numbers[e.tensor.name]) for e in below if isinstance(e, Read) and e.tensor.name in numbers)
