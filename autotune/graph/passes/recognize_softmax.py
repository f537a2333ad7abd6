"""Softmax and its logarithm written in primitive nodes become one node each.

requires: common subexpressions merged.
ensures: no quotient of exponentials and their sum along one axis is left, whatever was subtracted from the exponents
against overflow, nor the logarithm of one.
"""

from __future__ import annotations

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import made_by, number
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.tensor import DType


def recognize_softmax(graph: Graph) -> Graph:
    """`exp(x - max(x)) / sum(exp(x - max(x)))` --> `softmax(x)`;  `log(softmax(x))` --> `log_softmax(x)`."""
    return rewrite(graph, lambda sweep, node: _RULES[node.op](sweep, node), _RULES)


def _softmax(sweep: Sweep, node: Node) -> str | None:
    if not DType(node.output.dtype).is_float:
        return None
    pairs = [node.inputs] if node.op == "div" else []
    if node.op == "mul":
        for power, inverse in (node.inputs, node.inputs[::-1]):
            under = made_by(sweep, inverse, "reciprocal", "div")
            if under is not None and (under.op == "reciprocal" or number(sweep, under.inputs[0]) == 1.0):
                pairs.append((power, under.inputs[-1]))
    for power, total in pairs:
        exp, axis = made_by(sweep, power, "exp"), _sum_of(sweep, total, power)
        if exp is not None and axis is not None:
            return sweep.emit(node, "softmax", (_without_largest(sweep, exp.inputs[0], axis),), axis=axis)
    return None


def _log_softmax(sweep: Sweep, node: Node) -> str | None:
    if node.op == "log":
        softmax = made_by(sweep, node.inputs[0], "softmax")
        if softmax is None or not sweep.sole_use(softmax.name):
            return None
        return sweep.emit(node, "log_softmax", softmax.inputs, axis=softmax.attr("axis"))
    x, subtracted = node.inputs
    log = made_by(sweep, subtracted, "log", "reduce_log_sum_exp")
    if log is None or sweep.values[x].shape != node.output.shape:
        return None
    if log.op == "log":
        total = made_by(sweep, log.inputs[0], "reduce_sum")
        exp = made_by(sweep, total.inputs[0], "exp") if total is not None else None
        axis = _sum_of(sweep, log.inputs[0], exp.name) if exp is not None else None
        same = exp is not None and exp.inputs[0] == x
    else:
        axis, same = _axis(log), log.inputs[0] == x
    return (
        sweep.emit(node, "log_softmax", (_without_largest(sweep, x, axis),), axis=axis)
        if same and axis is not None
        else None
    )


def _axis(fold: Node) -> int | None:
    """The one axis that a reduction folds and keeps with extent 1."""
    axes = fold.int_tuple("axes")
    return axes[0] if len(axes) == 1 and fold.attr("keepdims") else None


def _sum_of(sweep: Sweep, total: str, power: str) -> int | None:
    """The axis along which `total` is the sum of `power`."""
    fold = made_by(sweep, total, "reduce_sum")
    return _axis(fold) if fold is not None and fold.inputs == (power,) else None


def _without_largest(sweep: Sweep, name: str, axis: int) -> str:
    """x, where the value is x less its maximum: the operator takes it off by itself."""
    minus = made_by(sweep, name, "sub")
    largest = made_by(sweep, minus.inputs[1], "reduce_max") if minus is not None else None
    if minus is None or largest is None or largest.inputs != minus.inputs[:1] or _axis(largest) != axis:
        return name
    return minus.inputs[0]


_RULES = {"div": _softmax, "mul": _softmax, "log": _log_softmax, "sub": _log_softmax}
