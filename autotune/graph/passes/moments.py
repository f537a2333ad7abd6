"""Means, mean squares and roots of variances in primitive nodes, over the last axes of a value."""

from __future__ import annotations

import math
from typing import NamedTuple

from autotune.graph.ir import Node
from autotune.graph.passes.match import made_by, near, number, product
from autotune.graph.passes.sweep import Sweep


class Mean(NamedTuple):
    """The mean of `value` over its axes from `axis` on, kept with extent 1."""

    value: str
    axis: int


def mean_of(sweep: Sweep, name: str, *, squares: bool = False) -> Mean | None:
    """What the value is the mean of, if it is one; with `squares`, what it is the mean of the squares of."""
    node = made_by(sweep, name, "reduce_mean")
    if node is None:  # a sum times one over the number of elements
        coefficient, factors = product(sweep, name)
        node = made_by(sweep, factors[0], "reduce_sum", "reduce_sum_square") if len(factors) == 1 else None
        if node is None or not _is_one(coefficient, node, sweep.values[node.inputs[0]].shape):
            return None
    (value,), axes = node.inputs, node.int_tuple("axes")
    if not node.attr("keepdims") or not axes or axes != tuple(range(axes[0], len(sweep.values[value].shape))):
        return None
    if (node.op == "reduce_sum_square") and squares:
        return Mean(value, axes[0])
    square = made_by(sweep, value, "mul") if squares else None
    if node.op == "reduce_sum_square" or (squares and (square is None or square.inputs[0] != square.inputs[1])):
        return None
    return Mean(square.inputs[0] if square is not None else value, axes[0])


def _is_one(coefficient: float, node: Node, shape: tuple[int, ...]) -> bool:
    return near(coefficient * math.prod(shape[d] for d in node.int_tuple("axes")), 1.0, node.output.dtype)


def centred(sweep: Sweep, name: str) -> Mean | None:
    """x and the first axis, where the value is x less its mean."""
    minus = made_by(sweep, name, "sub")
    mean = mean_of(sweep, minus.inputs[1]) if minus is not None else None
    return mean if minus is not None and mean is not None and mean.value == minus.inputs[0] else None


def variance_of(sweep: Sweep, name: str) -> Mean | None:
    """x and the first axis, where the value is the mean square of x less its mean, or the mean square less the square
    of the mean: layer normalisation takes the former, whose rounding errors are smaller."""
    squares = mean_of(sweep, name, squares=True)
    if squares is not None:
        found = centred(sweep, squares.value)
        return found if found is not None and found.axis == squares.axis else None
    minus = made_by(sweep, name, "sub")
    squares = mean_of(sweep, minus.inputs[0], squares=True) if minus is not None else None
    factors = product(sweep, minus.inputs[1]) if minus is not None else None
    if squares is None or factors is None or len(factors.factors) != 2 or factors.coefficient != 1.0:
        return None
    mean = mean_of(sweep, factors.factors[0])
    return squares if factors.factors[0] == factors.factors[1] and mean == squares else None


def under_root(sweep: Sweep, name: str) -> str | None:
    """v, where the value is one over the root of v."""
    node = made_by(sweep, name, "reciprocal", "div", "sqrt")
    if node is None or (node.op == "div" and number(sweep, node.inputs[0]) != 1.0):
        return None
    inner = made_by(sweep, node.inputs[-1], *(("reciprocal", "div") if node.op == "sqrt" else ("sqrt",)))
    if inner is None or (inner.op == "div" and number(sweep, inner.inputs[0]) != 1.0):
        return None
    return inner.inputs[-1]
