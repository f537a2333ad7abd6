"""Scales and shifts by constants: how a node applies one, and what a constant looks like per channel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autotune.graph.ir import Array, Node
from autotune.graph.passes.sweep import Sweep
from autotune.tensor import DType


class ConstantOperand(NamedTuple):
    """`other op array`, where `other` already has the shape of the result."""

    other: str
    array: Array


def constant_operand(sweep: Sweep, node: Node) -> ConstantOperand | None:
    """The constant of a floating-point `add` or `mul`, None if there is none or it would enlarge the other side."""
    if not DType(node.output.dtype).is_float:
        return None
    for position in (1, 0):
        array, other = sweep.array(node.inputs[position]), node.inputs[1 - position]
        if array is not None and sweep.array(other) is None and sweep.values[other].shape == node.output.shape:
            return ConstantOperand(other, array)
    return None


def side_by_side(
    sweep: Sweep,
    anchors: Sequence[Node],
    x: str,
    weights: Sequence[Array],
    biases: Sequence[Array],
    along: int,
    axis: int,
) -> str:
    """One product or convolution of `x` for several that are alike, and the sum with their biases if they have any.

    Args:
        weights: of each, equal but for dimension `along`, that of its outputs.
        biases: of each, flat; none where there are none.
        axis: of the result along which the outputs lie.
    """
    anchor = anchors[0]
    whole = sweep.constant(np.concatenate(weights, axis=along), f"{anchor.name}.beside")
    value = sweep.emit(anchors, anchor.op, (x, whole), **dict(anchor.attrs))
    if not biases:
        return value
    bias = np.concatenate(biases)
    shape = [bias.size if d == axis else 1 for d in range(len(anchor.output.shape))]
    return sweep.emit(anchor, "add", (value, sweep.constant(bias.reshape(shape), f"{anchor.name}.beside")))


def combined(op: str, a: Array, b: Array) -> Array | None:
    """a + b or a * b in float64, rounded once; None if broadcasting would make it larger than both."""
    if math.prod(np.broadcast_shapes(a.shape, b.shape)) > max(a.size, b.size):
        return None
    with np.errstate(all="ignore"):  # infinities and NaNs of the model are the model's
        first, second = a.astype(np.float64), b.astype(np.float64)
        return (first + second if op == "add" else first * second).astype(a.dtype)


def along_axis(array: Array, axis: int, rank: int) -> Array | None:
    """The constant as a vector along `axis` (or one number), None if it varies along any other axis."""
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(extent != 1 for position, extent in enumerate(shape) if position != axis):
        return None
    return array.reshape(-1)
