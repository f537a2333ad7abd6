"""Signed bytes that a product of two run-time values reads are made where the unsigned ones were.

bit_cast(xor(transpose(requantize(x, m, z: u8)), 128)) --> transpose(requantize(x, m, z - 128: i8))
"""

from __future__ import annotations

import numpy as np

from autotune.graph.integer_product import SHIFT
from autotune.graph.ir import Array, Node
from autotune.graph.passes.match import MAX_STEPS, made_by, number
from autotune.graph.passes.sweep import Sweep

_MOVING = frozenset({"reshape", "slice", "transpose"})


def made_signed(sweep: Sweep, node: Node) -> str | None:
    """A `bit_cast` of bytes that were moved down by 128, as those bytes."""
    moved = made_by(sweep, node.inputs[0], "bitwise_xor")
    if moved is None or node.output.dtype != "i8" or number(sweep, moved.inputs[1]) != SHIFT:
        return None
    return _lowered(sweep, moved.inputs[0]) if sweep.sole_use(moved.name) else None


def _lowered(sweep: Sweep, name: str) -> str | None:
    """The value less 128, as i8, computed anew; None where it is read elsewhere, or is no constant grid's."""
    path: list[Node] = []
    while sweep.sole_use(name) and len(path) < MAX_STEPS and (mover := made_by(sweep, name, *_MOVING)) is not None:
        path.append(mover)
        name = mover.inputs[0]
    source = made_by(sweep, name, "quantize", "requantize", "lookup") if sweep.sole_use(name) else None
    made = None if source is None or source.output.dtype != "u8" else _source(sweep, source)
    if made is None:
        return None
    for step in reversed(path):
        made = sweep.emit(step, step.op, (made,), **dict(step.attrs))
    return made


def _source(sweep: Sweep, node: Node) -> str | None:
    last = sweep.array(node.inputs[-1])  # the zero point, or the table
    if last is None:
        return None
    operands = (*node.inputs[:-1], sweep.constant(_less(last), node.name))
    return sweep.emit(node, node.op, operands, **({} if node.op == "lookup" else {"to": "i8"}))


def _less(array: Array) -> Array:
    return np.asarray(array.astype(np.int32) - SHIFT, np.int8)
