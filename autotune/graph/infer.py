"""Types of results: what `autotune.ops` computes for the operand types, remembered.

Shapes and dtypes follow from the one definition of each operator, so a graph that type-checks here also compiles.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from autotune.graph.ir import Attrs, Value
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, lookup
from autotune.ops.registry import has_trait
from autotune.ops.traits import Trait
from autotune.ops.workload import AttrValue

REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")


def infer(op: str, operands: Sequence[Value], attrs: Mapping[str, AttrValue]) -> tuple[str, tuple[int, ...]]:
    """(dtype, shape) of `op` on `operands`.

    Raises:
        WorkloadError: the operator is unknown, or the types or attributes do not fit it.
    """
    types = tuple(TensorType(operand.dtype, operand.shape) for operand in operands)
    result = _result_type(op, types, tuple(sorted(attrs.items())))
    return result.dtype, result.shape


@functools.lru_cache(maxsize=4096)
def _result_type(op: str, types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    node = WorkloadNode(op, tuple(range(len(types))), attrs)
    return Workload(tuple(map(WorkloadInput, types)), (node,), (len(types),)).types()[-1]


def is_elementwise(op: str) -> bool:
    """Whether every element of the result depends on one element of each operand."""
    return lookup(op).elementwise


def is_pointwise(op: str) -> bool:
    """Whether it is elementwise, and does the same to an element that lies elsewhere."""
    return is_elementwise(op) and not has_trait(op, Trait.PLACED)
