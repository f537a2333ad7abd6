"""Operators by name: the mathematics of each, once.

An operator is a function on Tensors. Its shape and dtype rules are those of the tensors it builds, so types,
reference values, fusion and templates all follow from one definition.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import WorkloadError
from autotune.ops.workload import TensorType, Workload
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.expr import Binary, Unary, walk
from autotune.tensor.stage import Stage, Tensor, compute, placeholder

Compute = Callable[[Sequence[Tensor], Mapping[str, Any]], Tensor]


@dataclass(frozen=True, slots=True)
class Operator:
    """`compute(inputs, attrs)` builds the stages; `elementwise` operators can fuse into any producer."""

    name: str
    compute: Compute
    elementwise: bool


_OPERATORS: dict[str, Operator] = {}
_ALGORITHMS: dict[tuple[str, str], Compute] = {}


def operator(name: str, *, elementwise: bool = False) -> Callable[[Compute], Compute]:
    """Register the plain ("direct") mathematics of an operator."""

    def register(fn: Compute) -> Compute:
        _OPERATORS[name] = Operator(name, fn, elementwise)
        return fn

    return register


def algorithm(op: str, name: str) -> Callable[[Compute], Compute]:
    """Register another ComputeDef of the same operator (Winograd, ...), verified against the plain one."""

    def register(fn: Compute) -> Compute:
        _ALGORITHMS[(op, name)] = fn
        return fn

    return register


def lookup(name: str) -> Operator:
    """The operator of that name.

    Raises:
        WorkloadError: when there is none; the message lists what exists.
    """
    if name in _OPERATORS:
        return _OPERATORS[name]
    close = difflib.get_close_matches(name, _OPERATORS, 1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(_OPERATORS))}"
    raise WorkloadError(f"unknown operator {name!r}; {hint}")


@functools.lru_cache(maxsize=512)
def compute_def(workload: Workload, algorithm: str = "direct") -> ComputeDef:
    """The stages of a workload; inputs are named in0, in1, ..., outputs out0, ... in operand order.

    Args:
        workload: operators, shapes and dtypes.
        algorithm: "direct", or another algorithm registered for the anchor.

    Raises:
        WorkloadError: for impossible shapes, dtypes or attributes, or an unknown algorithm.
    """
    values = _values(workload, algorithm)
    inputs = values[: len(workload.inputs)]
    outputs = []
    for position, number in enumerate(workload.outputs):
        value = values[number]
        if value.stage is None or workload.outputs.count(number) > 1:
            value = compute(value.shape, lambda *i, v=value: v[i], name="copy")  # type: ignore[misc]
        outputs.append(_renamed(value, f"out{position}"))
    return ComputeDef.build(inputs, outputs)


def value_types(workload: Workload) -> tuple[TensorType, ...]:
    """Type of every value of a workload, inputs first."""
    return tuple(TensorType(str(t.dtype), t.shape) for t in _values(workload, "direct"))


def flops(workload: Workload) -> int:
    """Arithmetic of the plain definition: every add, multiply, compare or function call counts 1."""
    return sum(_stage_flops(s) for s in compute_def(workload).stages)


def _values(workload: Workload, algorithm: str) -> list[Tensor]:
    values = [
        placeholder(i.type.shape, i.type.dtype, f"in{n}", i.constant) for n, i in enumerate(workload.inputs)
    ]
    anchor = workload.anchor
    for node in workload.nodes:
        fn = lookup(node.op).compute
        if algorithm != "direct" and node is anchor:
            known = [a for o, a in _ALGORITHMS if o == node.op]
            if algorithm not in known:
                raise WorkloadError(f"{node.op} has no algorithm {algorithm!r}; it has direct, {', '.join(known)}")
            fn = _ALGORITHMS[(node.op, algorithm)]
        values.append(fn([values[i] for i in node.inputs], dict(node.attrs)))
    return values


def _renamed(t: Tensor, name: str) -> Tensor:
    """The same tensor under another name, as its stage's only output."""
    if t.stage is None or len(t.stage.outputs) != 1:
        return t
    old = t.stage
    new = Tensor(name, t.shape, t.dtype)
    if old.scan_axis is not None:
        return t
    stage = Stage((new,), old.axes, old.reduce_axes, old.body, old.reducer, old.scan_axis)
    return Tensor(name, t.shape, t.dtype, stage)


def _stage_flops(stage: Stage) -> int:
    points = 1
    for axis in stage.all_axes:
        points *= axis.extent
    per_point = sum(
        1 for body in stage.body for e in walk(body) if isinstance(e, (Binary, Unary)) and e.dtype.is_float
    )
    return points * (per_point + (1 if stage.reducer is not None else 0))
