"""Reductions, argmax/argmin, cumulative sum and the softmax family."""

from __future__ import annotations

import math

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.source import dtype_of
from autotune.tensor import DType

_REDUCTIONS = {
    "ReduceL1": "reduce_l1",
    "ReduceL2": "reduce_l2",
    "ReduceLogSum": "reduce_log_sum",
    "ReduceLogSumExp": "reduce_log_sum_exp",
    "ReduceMax": "reduce_max",
    "ReduceMean": "reduce_mean",
    "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
    "ReduceSum": "reduce_sum",
    "ReduceSumSquare": "reduce_sum_square",
}
_WITHOUT_EFFECT = frozenset({"ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"})  # over no axes


def reduction_axes(node: OnnxNode) -> tuple[int, ...]:
    """Axes, sorted and non-negative; all axes when none are given, none when that means 'do nothing'."""
    given = node.ints_or_input("axes", 1)
    if not given:
        return () if node.attr_flag("noop_with_empty_axes") else tuple(range(node.rank()))
    axes = tuple(sorted(node.axis(axis, node.rank()) for axis in given))
    if len(set(axes)) != len(axes):
        raise ModelError(f"{node.label}: axes {given} repeat an axis")
    return axes


@converts(*_REDUCTIONS)
def reduce(node: OnnxNode) -> str:
    axes = reduction_axes(node)
    if not axes and node.op in _WITHOUT_EFFECT:
        return node.input(0)
    return node.emit(_REDUCTIONS[node.op], node.input(0), axes=axes, keepdims=node.attr_flag("keepdims", default=True))


@converts("ArgMax", "ArgMin")
def arg_reduce(node: OnnxNode) -> str:
    return node.emit(
        node.op.lower(),
        node.input(0),
        axis=node.axis(node.attr_int("axis", 0), node.rank()),
        keepdims=node.attr_flag("keepdims", default=True),
        select_last_index=node.attr_flag("select_last_index"),
    )


@converts("CumSum", "CumProd")
def cumulative(node: OnnxNode) -> str:
    axes = node.constant_ints(1, "axis")
    if len(axes) != 1:
        raise ModelError(f"{node.label}: the axis must be one number, not {axes}")
    (axis,) = axes
    return node.emit(
        node.op.lower(),
        node.converted(node.input(0), DType.i64) if node.value().dtype == DType.bool.value else node.input(0),
        axis=node.axis(axis, node.rank()),
        exclusive=node.attr_flag("exclusive"),
        reverse=node.attr_flag("reverse"),
    )


@converts("Softmax", "LogSoftmax", "Hardmax")
def softmax(node: OnnxNode) -> str:
    op = {"LogSoftmax": "log_softmax"}.get(node.op, node.op.lower())
    return along_axis(node, op, node.input(0), node.opset)


def along_axis(node: OnnxNode, op: str, x: str, opset: int) -> str:
    """A softmax or its kin of x along `axis`; before opset 13 the axes from `axis` on are flattened into one."""
    shape = node.builder.values[x].shape
    axis = node.axis(node.attr_int("axis", -1 if opset >= 13 else 1), len(shape))
    if 0 in shape:
        return x
    if opset < 13 and math.prod(shape[axis + 1 :]) != 1:
        x, axis = node.reshaped(x, (math.prod(shape[:axis]), math.prod(shape[axis:]))), 1
    return node.reshaped(node.emit(op, x, axis=axis), shape)


@converts("HannWindow", "HammingWindow", "BlackmanWindow")
def cosine_window(node: OnnxNode) -> str:
    sizes = node.constant_ints(0, "size")
    if len(sizes) != 1:
        raise ModelError(f"{node.label}: the size must be one number, not {sizes}")
    to = dtype_of(node.attr_int("output_datatype", 1), node.label)
    return node.emit(
        "cosine_window",
        kind=node.op[: -len("Window")].lower(),
        size=sizes[0],
        periodic=node.attr_flag("periodic", default=True),
        to=to.value,
    )
