"""Looking at expressions from their result: products, scales and shifts by numbers, whatever the order of operands."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from autotune.graph.ir import Node
from autotune.graph.passes.sweep import Sweep
from autotune.ops.registry import has_trait
from autotune.ops.traits import Trait
from autotune.tensor import DType

MAX_FACTORS = 8
MAX_STEPS = 64  # up a chain of nodes: what people write is short, and every node may be asked
_NOT_NEGATIVE = frozenset({"abs", "exp", "hard_sigmoid", "relu", "sigmoid", "softmax", "softplus", "sqrt"})
_KEEP_SIGN = frozenset(
    {"add", "avg_pool", "concat", "div", "expand", "max", "max_pool", "min", "mul", "reduce_max", "reduce_mean",
     "reduce_sum", "reshape", "slice", "transpose"}
)  # fmt: skip
ACCURACY = 1e-6
HALF_ACCURACY = {"f16": 2.0**-10, "bf16": 2.0**-7}
"""Of numbers that constants of these types stand for, a reciprocal rounded twice; of f32 and f64 ACCURACY."""


class Product(NamedTuple):
    """coefficient · factors[0] · factors[1] · ..."""

    coefficient: float
    factors: tuple[str, ...]


class Bounded(NamedTuple):
    """min(max(value, low), high)."""

    value: str
    low: float
    high: float


class Affine(NamedTuple):
    """scale · value + shift."""

    scale: float
    value: str
    shift: float


def made_by(sweep: Sweep, name: str, *ops: str) -> Node | None:
    """The node that computes a value, if it is one of `ops`."""
    node = sweep.producers.get(name)
    return node if node is not None and node.op in ops else None


def number(sweep: Sweep, name: str) -> float | None:
    """The value of a constant of one element."""
    array = sweep.array(name)
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def beside_number(sweep: Sweep, node: Node) -> tuple[str, float] | None:
    """(x, c) of a node `x op c`, or `c op x` of a commutative one, where x has the shape of the result."""
    for position in (1, 0) if has_trait(node.op, Trait.COMMUTATIVE) else (1,):
        value, other = number(sweep, node.inputs[position]), node.inputs[1 - position]
        if value is not None and sweep.array(other) is None and sweep.values[other].shape == node.output.shape:
            return other, value
    return None


def product(sweep: Sweep, name: str) -> Product:
    """The value as a product of a number and other values; a square counts twice."""
    coefficient, todo = 1.0, [name]
    factors: list[str] = []
    for step in range(MAX_STEPS + 2 * MAX_FACTORS):
        if not todo:
            break
        value = todo.pop()
        node = made_by(sweep, value, "mul", "div", "pow")
        scaled = beside_number(sweep, node) if node is not None else None
        if node is None or step >= MAX_STEPS or len(todo) + len(factors) >= MAX_FACTORS:
            factors.append(value)
        elif node.op == "pow":
            whole = scaled is not None and scaled[1] in (2.0, 3.0)
            if scaled is not None and whole:
                todo += [scaled[0]] * int(scaled[1])
            else:
                factors.append(value)
        elif scaled is not None and (node.op == "mul" or scaled[1]):
            coefficient = coefficient * scaled[1] if node.op == "mul" else coefficient / scaled[1]
            todo.append(scaled[0])
        elif node.op == "mul" and all(sweep.values[x].shape == node.output.shape for x in node.inputs):
            todo += node.inputs
        else:
            factors.append(value)
    return Product(coefficient, tuple(sorted(factors)))


def affine(sweep: Sweep, name: str) -> Affine:
    """The value as scale · x + shift, with x as far up as it goes."""
    scale, shift = 1.0, 0.0
    for _ in range(MAX_STEPS):
        node = made_by(sweep, name, "add", "sub", "mul", "div")
        found = beside_number(sweep, node) if node is not None else None
        if node is None or found is None or (node.op == "div" and not found[1]):
            return Affine(scale, name, shift)
        name, value = found
        if node.op in ("add", "sub"):
            shift += scale * (value if node.op == "add" else -value)
        else:
            scale = scale * value if node.op == "mul" else scale / value
    return Affine(scale, name, shift)


def bounded(sweep: Sweep, name: str) -> Bounded:
    """The value between bounds, with value as far up as it goes; infinite bounds where there are none."""
    low, high = -math.inf, math.inf
    for _ in range(MAX_STEPS):
        found = _bounds(sweep, made_by(sweep, name, "clip", "relu", "min", "max"))
        if found is None:
            break
        name = found.value  # what lies inside is bounded first
        low, high = (min(max(bound, low), high) for bound in (found.low, found.high))
    return Bounded(name, low, high)


def _bounds(sweep: Sweep, node: Node | None) -> Bounded | None:
    if node is None or not DType(node.output.dtype).is_float:
        return None
    if node.op == "relu":
        return Bounded(node.inputs[0], 0.0, math.inf)
    if node.op == "clip":
        low, high = node.number("min"), node.number("max")
        return Bounded(node.inputs[0], min(low, high), high)
    found = beside_number(sweep, node)
    if found is None or math.isnan(found[1]):
        return None
    return Bounded(found[0], -math.inf, found[1]) if node.op == "min" else Bounded(found[0], found[1], math.inf)


def is_not_negative(sweep: Sweep, name: str, steps: int = MAX_FACTORS) -> bool:
    """Whether the value is known to be zero or more, or NaN, from at most `steps` nodes up."""
    node = sweep.producers.get(name)
    if node is None or not steps:
        array = sweep.array(name)
        return array is not None and array.size == 1 and bool(np.all(array >= 0))
    if node.op == "mul" and node.inputs[0] == node.inputs[1]:
        return True
    if node.op in ("clip", "max") and bounded(sweep, name).low >= 0:
        return True
    if node.op in _KEEP_SIGN:
        return all(is_not_negative(sweep, operand, steps - 1) for operand in node.inputs)
    return node.op in _NOT_NEGATIVE


def near(value: float, wanted: float, dtype: str) -> bool:
    """Whether constants of a dtype whose product is `value` stand for `wanted`."""
    return math.isclose(value, wanted, rel_tol=HALF_ACCURACY.get(dtype, ACCURACY))
