"""Chains of scales and shifts by constants become one scale and one shift.

requires: a verified graph.    ensures: no scale of a scale, no shift of a shift, no scale of a shift; of two constants
in a sum or product of several values one is left.
Batch normalisations arrive as a scale and a shift, so this is half of folding them.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.affine import combined, constant_operand
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.tensor import DType


def merge_affine(graph: Graph) -> Graph:
    """`(x + a) * b` --> `x * b + a*b`;  `x * a * b` --> `x * (a*b)`;  `x + a + y + b` --> `x + y + (a+b)`."""
    return rewrite(graph, _merged)


def _without_sub(sweep: Sweep, node: Node) -> str | None:
    """`x - a` --> `x + (-a)`: the same numbers."""
    array = sweep.array(node.inputs[1])
    if array is None or not DType(node.output.dtype).is_float:
        return None
    return sweep.emit(node, "add", (node.inputs[0], sweep.constant(np.negative(array), node.name)))


def _merged(sweep: Sweep, node: Node) -> str | None:
    if node.op == "sub":
        return _without_sub(sweep, node)
    return _in_a_row(sweep, node) or _gathered(sweep, node)


def _in_a_row(sweep: Sweep, node: Node) -> str | None:
    outer = constant_operand(sweep, node) if node.op in ("add", "mul") else None
    producer = sweep.producers.get(outer.other) if outer else None
    if outer is None or producer is None or not sweep.sole_use(producer.name):
        return None
    if producer.op not in ("add", "mul") or (node.op, producer.op) == ("add", "mul"):
        return None
    inner = constant_operand(sweep, producer)
    merged = combined(node.op, inner.array, outer.array) if inner else None
    if inner is None or merged is None:
        return None
    if producer.op == node.op:
        return sweep.emit(node, node.op, (inner.other, sweep.constant(merged, node.name)))
    scaled = sweep.emit(node, "mul", (inner.other, sweep.constant(outer.array, node.name)))
    return sweep.emit(node, "add", (scaled, sweep.constant(merged, node.name)))


def _gathered(sweep: Sweep, node: Node) -> str | None:
    """Two constants of one sum, or one product, with something in between."""
    outer = constant_operand(sweep, node) if node.op in ("add", "mul") else None
    middle = sweep.producers.get(outer.other) if outer else None
    if outer is None or middle is None or middle.op != node.op or not sweep.sole_use(middle.name):
        return None
    for inner, other in (middle.inputs, middle.inputs[::-1]):
        first = sweep.producers.get(inner)
        if first is None or first.op != node.op or first.output.shape != node.output.shape or not sweep.sole_use(inner):
            continue
        held = constant_operand(sweep, first)
        merged = combined(node.op, held.array, outer.array) if held else None
        if held is not None and merged is not None:
            gathered = sweep.emit(node, node.op, (held.other, other))
            return sweep.emit(node, node.op, (gathered, sweep.constant(merged, node.name)))
    return None
