"""Which operators compute each place along a dimension by itself, and from which places of their operands.

It follows from the one definition of each operator, as types do (`infer`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import WorkloadError
from autotune.graph.infer import infer
from autotune.graph.ir import Attrs, Node, Value
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.ops.registry import compute_def
from autotune.tensor.expr import Expr, Read, Var, children
from autotune.tensor.stage import Stage

_EXTENTS = {"expand": "shape", "reshape": "shape", "slice": "size"}
"""The attribute in which an operator is told the shape of its result."""


@dataclass(frozen=True, slots=True)
class Fewer:
    """A node that computes some places of a dimension only.

    Attributes:
        dims: of each operand, the dimension along which it has just these places, too; None where all places of the
            result read the same of it.
    """

    dims: tuple[int | None, ...]
    attrs: Attrs


def of_fewer(node: Node, values: Mapping[str, Value], axis: int, count: int) -> Fewer | None:
    """The node for `count` places along an axis of its result, whichever these are; None where an operator computes
    them from other places, or by where they are."""
    types = tuple(TensorType(values[name].dtype, values[name].shape) for name in node.inputs)
    dims = places(node.op, types, node.attrs, axis)
    if dims is None:
        return None
    attrs = dict(node.attrs)
    if node.op in _EXTENTS:
        attrs[_EXTENTS[node.op]] = _with(node.output.shape, axis, count)
    operands = [
        value if dim is None else Value(value.name, value.dtype, _with(value.shape, dim, count))
        for value, dim in zip((values[name] for name in node.inputs), dims, strict=True)
    ]
    try:
        found = infer(node.op, operands, attrs)
    except WorkloadError:
        return None
    fits = found == (node.output.dtype, _with(node.output.shape, axis, count))
    return Fewer(dims, tuple(sorted(attrs.items()))) if fits else None


def _with(shape: Sequence[int], axis: int, count: int) -> tuple[int, ...]:
    return (*shape[:axis], count, *shape[axis + 1 :])


@functools.lru_cache(maxsize=4096)
def places(op: str, types: tuple[TensorType, ...], attrs: Attrs, axis: int) -> tuple[int | None, ...] | None:
    """Of each operand, the dimension of which place i of the result's axis reads place i alone, None for an operand of
    which all places read the same; no tuple where it is neither, or where the result depends on i itself."""
    definition = compute_def(
        Workload(tuple(map(WorkloadInput, types)), (WorkloadNode(op, tuple(range(len(types))), attrs),), (len(types),))
    )
    extent = definition.output_tensors[0].shape[axis]
    found: dict[str, int | None] = dict.fromkeys(definition.outputs, axis)
    for stage in reversed(definition.stages):
        along = {found[tensor.name] for tensor in stage.outputs if tensor.name in found}
        if not along:
            continue
        if len(along) > 1 or (stage.extern, stage.scan_axis, stage.recurrence) != (None, None, None):
            return None
        (dim,) = along
        for read, own in _reads(stage, None if dim is None else stage.axes[dim].var):
            if len(own) > 1 or any(read.tensor.shape[d] != extent for d in own):
                return None
            if found.setdefault(read.tensor.name, own[0] if own else None) != (own[0] if own else None):
                return None
        if dim is not None and any(_depends(body, stage.axes[dim].var) for body in stage.body):
            return None
    return tuple(found.get(tensor.name) for tensor in definition.inputs)


def _reads(stage: Stage, var: Var | None) -> Iterator[tuple[Read, list[int]]]:
    """Every read of a stage, and the dimensions along which it reads the place that the variable says."""
    for read in stage.reads():
        yield read, [] if var is None else [d for d, index in enumerate(read.indices) if index == var]


def _depends(e: Expr, var: Var) -> bool:
    """Whether an expression has the variable elsewhere than as the place of what it reads."""
    if isinstance(e, Read):
        below = [index for index in e.indices if index != var]
        return any(_depends(index, var) for index in (*below, *(() if e.when is None else (e.when,))))
    return e == var or any(_depends(child, var) for child in children(e))
