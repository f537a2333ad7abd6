"""Quantising by a constant scale multiplies by its reciprocal instead of dividing.

requires: integer-regions, whose rules read `quantize`: it comes last, once.
ensures: no real number in f32 is quantised to bytes by a division by constants whose reciprocals are normal numbers.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.integer.values import BYTES, is_normal, target
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep, rewrite

ROW = 8
"""Elements that share a divisor, from which on its reciprocal is worth computing."""


def multiply_by_reciprocals(graph: Graph) -> Graph:
    """`quantize(x, s, z)` --> `requantize(x, 1 / s, z)`; a quotient by one number for a row behind it likewise."""
    return rewrite(graph, _multiplied, {"quantize"})


def _multiplied(sweep: Sweep, node: Node) -> str | None:
    grid = target(sweep, node)
    if grid is None or grid.dtype.value not in BYTES or not grid.scale.all():
        return None
    reciprocal = 1.0 / grid.scale.astype(np.float64)
    if not is_normal(grid.scale) or not is_normal(reciprocal):
        return None
    value = _quotient(sweep, node.inputs[0])
    operands = (value, sweep.constant(reciprocal.astype(np.float32), node.name), node.inputs[2])
    return sweep.emit(node, "requantize", operands, to=grid.dtype.value)


def _quotient(sweep: Sweep, name: str) -> str:
    """A quotient by one number for many elements as a product with its reciprocal; any other value as it is."""
    node = made_by(sweep, name, "div")
    if node is None or not sweep.sole_use(name):
        return name
    x, divisor = node.inputs
    if sweep.values[x].shape != node.output.shape or sweep.values[divisor].size * ROW > node.output.size:
        return name
    return sweep.emit(node, "mul", (x, sweep.emit(node, "reciprocal", (divisor,))))
