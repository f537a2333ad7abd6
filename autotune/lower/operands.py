"""The values of a kernel's operands, from those of its workload."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.lower.ir import Operand
from autotune.tensor.dtype import DType
from autotune.tensor.evaluate import evaluate
from autotune.tensor.layout import Array


def logical_operand(operand: Operand, inputs: Mapping[str, Array]) -> Array:
    """The logical array of an input operand; prepared constants are computed in float64 and rounded once.

    Args:
        operand: an input operand.
        inputs: the workload's inputs by name (in0, in1, ...).
    """
    if operand.prepared is None:
        return inputs[operand.name]
    needed = {t.name: inputs[t.name] for t in operand.prepared.inputs}
    (value,) = evaluate(operand.prepared, needed, DType.f64 if operand.dtype.is_float else None).values()
    return value.astype(operand.dtype.numpy)


def physical_operand(operand: Operand, inputs: Mapping[str, Array]) -> Array:
    """The operand as it lies in memory: C-contiguous, padding and halo zero."""
    return operand.layout.pack(logical_operand(operand, inputs))
