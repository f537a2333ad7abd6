"""Sums in i32 meet what comes behind a product: a bias joins the sum, quantising is one multiplication.

add(dequantize(t, s, 0), b) --> dequantize(t + b / s, s, 0)    where b / s is whole within f32's error
quantize(dequantize(t, s, 0), u, z) --> requantize(t, s / u, z)
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Array, Node
from autotune.graph.passes.integer.values import Dequantized, dequantized, is_normal, plain_target
from autotune.graph.passes.sweep import Sweep

TOLERANCE = 2.0**-21
"""Of a bias that is written in f32, how far a whole number of scales may be off."""
MOST_BIAS = 2**30


def biased(sweep: Sweep, node: Node) -> str | None:
    """A bias that is whole on the grid of the sum joins it."""
    if node.op != "add":
        return None
    for position in (0, 1):
        total, bias = _sum(sweep, node.inputs[position]), _constant(sweep, node.inputs[1 - position])
        if total is None or bias is None or node.output.shape != sweep.values[total.value].shape:
            continue
        whole = _whole(bias, total.grid.scale)
        if whole is None or not sweep.sole_use(node.inputs[position]):
            continue
        value, before = _parts(sweep, total.value)
        moved = sweep.emit(node, "add", (value, sweep.constant(whole + before, node.name)))
        return sweep.emit(node, "dequantize", (moved, *total.node.inputs[1:]), to="f32")
    return None


def requantized(sweep: Sweep, node: Node) -> str | None:
    """A sum becomes bytes by one multiplication and one rounding."""
    grid = plain_target(sweep, node)
    total = _sum(sweep, node.inputs[0]) if grid is not None else None
    if grid is None or total is None:
        return None
    multiplier = total.grid.scale.astype(np.float64) / grid.step
    if not is_normal(multiplier):
        return None
    operands = (total.value, sweep.constant(multiplier.astype(np.float32), node.name), node.inputs[2])
    return sweep.emit(node, "requantize", operands, to=grid.dtype.value)


def _sum(sweep: Sweep, name: str) -> Dequantized | None:
    """A sum in i32 whose zero point is 0."""
    found = dequantized(sweep, name)
    return found if found is not None and found.grid.dtype.value == "i32" and not found.grid.zero.any() else None


def _parts(sweep: Sweep, total: str) -> tuple[str, Array]:
    """(the sum without what is added to it, which is a constant that nobody else needs)."""
    node = sweep.producers.get(total)
    if node is not None and node.op == "add" and sweep.sole_use(total):
        addend = sweep.array(node.inputs[1])
        if addend is not None:
            return node.inputs[0], addend
    return total, np.zeros((), np.int32)


def _constant(sweep: Sweep, name: str) -> Array | None:
    """The numbers of a constant in f64, of a dequantised and a reshaped one, too."""
    array = sweep.array(name)
    if array is not None:
        return array.astype(np.float64) if array.dtype == np.float32 else None
    node = sweep.producers.get(name)
    if node is not None and node.op == "reshape":
        inner = _constant(sweep, node.inputs[0])
        return None if inner is None else inner.reshape(node.output.shape)
    found = dequantized(sweep, name)
    array = None if found is None else sweep.array(found.value)
    if found is None or array is None:
        return None
    return (array.astype(np.float64) - found.grid.zero.astype(np.float64)) * found.grid.scale.astype(np.float64)


def _whole(bias: Array, scale: Array) -> Array | None:
    """The bias in scales, as i32; None where it is not whole, or too large."""
    wide = np.broadcast_arrays(bias, scale.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(wide[0] == 0, 0.0, wide[0] / wide[1])
    if not np.isfinite(quotient).all() or np.abs(quotient).max(initial=0.0) > MOST_BIAS:
        return None
    whole = np.rint(quotient)
    return whole.astype(np.int32) if (np.abs(quotient - whole) <= TOLERANCE * np.abs(quotient)).all() else None
