"""The values of a kernel's operands, from those of its workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autotune.lower.ir import Operand
from autotune.tensor.dtype import DType
from autotune.tensor.evaluate import evaluate, evaluate_parts
from autotune.tensor.layout import Array

PART = 1 << 19  # elements computed and packed at a time: weights may fill half the memory, so no copies beside them


def fill_operand(operand: Operand, inputs: Mapping[str, Array], memory: Array) -> None:
    """Write an input operand as it lies in memory: padding and halo zero.

    Args:
        operand: an input operand.
        inputs: the workload's inputs by name (in0, in1, ...).
        memory: u8, `operand.bytes` long.
    """
    layout = operand.layout
    physical = memory.view(operand.dtype.numpy).reshape(layout.physical_shape(operand.shape))
    dimension = _longest(operand)
    if dimension is None:
        physical[...] = layout.pack(_whole(operand, inputs))
        return
    block = layout.block(dimension)
    axis = layout.order.index((dimension, 0))
    blocks = max(1, PART * -(-operand.shape[dimension] // block) // layout.elements(operand.shape))
    for n, part in enumerate(_parts(operand, inputs, dimension, blocks * block)):
        physical[(slice(None),) * axis + (slice(n * blocks, (n + 1) * blocks),)] = layout.pack(part)


def _longest(operand: Operand) -> int | None:
    """The dimension with the most blocks, none where every one has a halo or there are no elements."""
    layout, found, most = operand.layout, None, 0
    for d, extent in enumerate(operand.shape):
        blocks = -(-extent // layout.block(d))
        if layout.halo[d] == (0, 0) and blocks > most:
            found, most = d, blocks
    return found if layout.elements(operand.shape) else None


# What is prepared from constants is computed in float64 and rounded once.


def _whole(operand: Operand, inputs: Mapping[str, Array]) -> Array:
    """The logical operand."""
    if operand.prepared is None:
        return inputs[operand.name]
    (value,) = evaluate(operand.prepared, _needed(operand, inputs), _precision(operand)).values()
    return value.astype(operand.dtype.numpy)


def _parts(operand: Operand, inputs: Mapping[str, Array], dimension: int, extent: int) -> Iterator[Array]:
    """The logical operand, `extent` indices of one dimension at a time."""
    if operand.prepared is None:
        for start in range(0, operand.shape[dimension], extent):
            yield inputs[operand.name][(slice(None),) * dimension + (slice(start, start + extent),)]
        return
    for part in evaluate_parts(operand.prepared, _needed(operand, inputs), _precision(operand), dimension, extent):
        yield part.astype(operand.dtype.numpy)


def _needed(operand: Operand, inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {t.name: inputs[t.name] for t in operand.prepared.inputs} if operand.prepared is not None else {}


def _precision(operand: Operand) -> DType | None:
    return DType.f64 if operand.dtype.is_float else None
