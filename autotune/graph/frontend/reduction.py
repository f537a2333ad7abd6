"""Reductions, argmax/argmin, cumulative sum and the softmax family."""

from __future__ import annotations

import math

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts

_PLAIN = {"ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceMax": "reduce_max",
          "ReduceMin": "reduce_min", "ReduceProd": "reduce_prod"}  # fmt: skip


def reduction_axes(node: OnnxNode) -> tuple[int, ...]:
    """Axes, sorted and non-negative; all axes when none are given, none when that means 'do nothing'."""
    given = node.ints_or_input("axes", 1)
    if not given:
        return () if node.attr_int("noop_with_empty_axes", 0) else tuple(range(node.rank()))
    axes = tuple(sorted(node.axis(axis, node.rank()) for axis in given))
    if len(set(axes)) != len(axes):
        raise ModelError(f"{node.label}: axes {given} repeat an axis")
    return axes


def _reduced(node: OnnxNode, op: str, x: str) -> str:
    axes = reduction_axes(node)
    keepdims = bool(node.attr_int("keepdims", 1))
    return node.emit(op, x, axes=axes, keepdims=keepdims) if axes else x


@converts(*_PLAIN)
def reduce(node: OnnxNode) -> str:
    return _reduced(node, _PLAIN[node.op], node.input(0))


@converts("ReduceSumSquare", "ReduceL2", "ReduceL1", "ReduceLogSum", "ReduceLogSumExp")
def reduce_composed(node: OnnxNode) -> str:
    x = node.input(0)
    if node.op == "ReduceLogSumExp":
        return _log_sum_exp(node, x)
    if node.op == "ReduceL1":
        return _reduced(node, "reduce_sum", node.emit("abs", x))
    if node.op == "ReduceLogSum":
        return node.emit("log", _reduced(node, "reduce_sum", x))
    squares = _reduced(node, "reduce_sum", node.emit("mul", x, x))
    return node.emit("sqrt", squares) if node.op == "ReduceL2" else squares


def _log_sum_exp(node: OnnxNode, x: str) -> str:
    """max + log(sum(exp(x - max))): no overflow for large x."""
    axes = reduction_axes(node)
    if not axes:
        return x
    keepdims = bool(node.attr_int("keepdims", 1))
    largest = node.emit("reduce_max", x, axes=axes, keepdims=True)
    total = node.emit("reduce_sum", node.emit("exp", node.emit("sub", x, largest)), axes=axes, keepdims=True)
    result = node.emit("add", node.emit("log", total), largest)
    if keepdims:
        return result
    return node.reshaped(result, [extent for axis, extent in enumerate(node.shape()) if axis not in axes])


@converts("ArgMax", "ArgMin")
def arg_reduce(node: OnnxNode) -> str:
    return node.emit(
        node.op.lower(),
        node.input(0),
        axis=node.axis(node.attr_int("axis", 0), node.rank()),
        keepdims=bool(node.attr_int("keepdims", 1)),
        select_last_index=bool(node.attr_int("select_last_index", 0)),
    )


@converts("CumSum")
def cumsum(node: OnnxNode) -> str:
    (axis,) = node.constant_ints(1, "axis")
    return node.emit(
        "cumsum",
        node.input(0),
        axis=node.axis(axis, node.rank()),
        exclusive=bool(node.attr_int("exclusive", 0)),
        reverse=bool(node.attr_int("reverse", 0)),
    )


@converts("Softmax", "LogSoftmax")
def softmax(node: OnnxNode) -> str:
    """Before opset 13 the axes from `axis` on are flattened into one."""
    shape, rank = node.shape(), node.rank()
    x = node.input(0)
    if node.opset >= 13:
        axis = node.axis(node.attr_int("axis", -1), rank)
    else:
        axis = node.axis(node.attr_int("axis", 1), rank)
        if math.prod(shape[axis + 1 :]) != 1:
            x, axis = node.reshaped(x, (math.prod(shape[:axis]), math.prod(shape[axis:]))), 1
    if node.op == "Softmax":
        return node.reshaped(node.emit("softmax", x, axis=axis), shape)
    centred = node.emit("sub", x, node.emit("reduce_max", x, axes=(axis,), keepdims=True))
    total = node.emit("reduce_sum", node.emit("exp", centred), axes=(axis,), keepdims=True)
    return node.reshaped(node.emit("sub", centred, node.emit("log", total)), shape)
