"""Eager operators that compute: element by element, or along axes."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import onnx

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host.eager import PLAIN, Arrays, Compute, axes_of, eagerly, ints_of, quietly
from autotune.graph.ir import Array

# Elementwise ---------------------------------------------------------------------------------------------

_NUMBERS, _FLOATS, _BOOLS = "iuf", "f", "b"
SAME: dict[str, tuple[Any, str]] = {
    "Add": (np.add, _NUMBERS), "Sub": (np.subtract, _NUMBERS), "Mul": (np.multiply, _NUMBERS),
    "Div": (np.divide, _FLOATS), "And": (np.logical_and, _BOOLS), "Or": (np.logical_or, _BOOLS),
    "Xor": (np.logical_xor, _BOOLS), "Equal": (np.equal, _NUMBERS + _BOOLS), "Greater": (np.greater, _NUMBERS),
    "GreaterOrEqual": (np.greater_equal, _NUMBERS), "Less": (np.less, _NUMBERS),
    "LessOrEqual": (np.less_equal, _NUMBERS),
}  # fmt: skip
BROADCAST = frozenset((*SAME, "Max", "Min", "Clip"))
"""Operators whose result has the extents of all operands together."""

ONE: dict[str, tuple[Any, str]] = {
    "Abs": (np.abs, _FLOATS), "Ceil": (np.ceil, _FLOATS), "Exp": (np.exp, _FLOATS), "Floor": (np.floor, _FLOATS),
    "Log": (np.log, _FLOATS), "Neg": (np.negative, "if"), "Not": (np.logical_not, _BOOLS),
    "Reciprocal": (lambda x: 1 / x, _FLOATS), "Relu": (lambda x: np.maximum(x, x.dtype.type(0)), _FLOATS),
    "Round": (np.rint, _FLOATS), "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), _FLOATS), "Sign": (np.sign, "if"),
    "Sqrt": (np.sqrt, _FLOATS), "Tanh": (np.tanh, _FLOATS),
}  # fmt: skip


@eagerly(*SAME, inputs=2)
def _of_two(node: NodeAttributes) -> Compute | None:
    function, kinds = quietly(SAME[node.op][0]), SAME[node.op][1]
    if node.opset < 7:  # they broadcast by attributes
        return None

    def compute(given: Arrays) -> Arrays | None:
        one, other = given
        if one.dtype.kind not in kinds:
            return _divided(one, other) if node.op == "Div" else None
        return (np.asarray(function(one, other)),) if one.dtype == other.dtype else None

    return compute


def _divided(one: Array, other: Array) -> Arrays | None:
    """Integers, towards zero."""
    if one.dtype != other.dtype or one.dtype.kind not in "iu" or not other.all():
        return None
    whole = one // other
    return (whole + ((whole < 0) & (whole * other != one)),) if one.dtype.kind == "i" else (whole,)


@eagerly(*ONE)
def _of_one(node: NodeAttributes) -> Compute:
    function, kinds = quietly(ONE[node.op][0]), ONE[node.op][1]
    return lambda given: (np.asarray(function(given[0])),) if given[0].dtype.kind in kinds else None


@eagerly("Max", "Min")
def _extreme(node: NodeAttributes) -> Compute | None:
    function = quietly(np.maximum if node.op == "Max" else np.minimum)
    if node.opset < 8:
        return None

    def compute(given: Arrays) -> Arrays | None:
        alike = all(a.dtype == given[0].dtype for a in given) and given[0].dtype.kind in _NUMBERS
        return (np.asarray(reduce(function, given)),) if alike else None

    return compute


@eagerly("Clip")
def _clip(node: NodeAttributes) -> Compute | None:
    if node.opset < 11:
        return None
    return lambda given: (
        (np.asarray(np.minimum(np.maximum(given[0], given[1]), given[2])),)
        if len(given) == 3 and given[0].dtype == given[1].dtype == given[2].dtype
        else None
    )


@eagerly("Cast")
def _cast(node: NodeAttributes) -> Compute | None:
    if node.opset < 6:
        return None
    try:
        to = onnx.helper.tensor_dtype_to_np_dtype(node.attr_int("to", 0))
    except KeyError:
        return None
    if to.char not in PLAIN:
        return None
    limit = 2.0 ** (8 * to.itemsize - 1)

    def compute(given: Arrays) -> Arrays | None:
        x = given[0]
        if x.dtype.kind == "f" and to.kind in "iu":
            least = -limit if to.kind == "i" else 0.0
            if not ((x >= least) & (x < limit)).all():
                return None
        return (quietly(np.ndarray.astype)(x, to),)

    return compute


# Along axes ----------------------------------------------------------------------------------------------

_REDUCE: dict[str, Any] = {
    "ReduceMax": np.max, "ReduceMean": np.mean, "ReduceMin": np.min, "ReduceProd": np.prod, "ReduceSum": np.sum,
}  # fmt: skip


@eagerly(*_REDUCE)
def _reduce(node: NodeAttributes) -> Compute:
    function, keep = quietly(_REDUCE[node.op]), node.attr_flag("keepdims", default=True)
    wanted, nothing = axes_of(node), node.attr_flag("noop_with_empty_axes")

    def compute(given: Arrays) -> Arrays | None:
        x, axes = given[0], wanted(given)
        if x.dtype.kind not in ("f" if node.op == "ReduceMean" else "if") or (not axes and nothing):
            return None
        more = {} if node.op in ("ReduceMax", "ReduceMin") else {"dtype": x.dtype}
        return (np.asarray(function(x, axis=tuple(axes) if axes else None, keepdims=keep, **more)),)

    return compute


@eagerly("Softmax")
def _softmax(node: NodeAttributes) -> Compute | None:
    axis = node.attr_int("axis", -1)
    if node.opset < 13:
        return None

    def compute(given: Arrays) -> Arrays | None:
        (x,) = given
        if x.dtype.kind != "f":
            return None
        found = quietly(lambda x: np.exp(x - x.max(axis, keepdims=True)))(x)
        return (quietly(np.divide)(found, found.sum(axis, keepdims=True)),)

    return compute


@eagerly("ArgMax", "ArgMin")
def _argument(node: NodeAttributes) -> Compute | None:
    function, axis, keep = (
        getattr(np, node.op.lower()),
        node.attr_int("axis", 0),
        node.attr_flag("keepdims", default=True),
    )
    if node.attr_flag("select_last_index"):
        return None

    def compute(given: Arrays) -> Arrays | None:
        x = given[0]
        if x.dtype.kind not in _NUMBERS or (x.dtype.kind == "f" and np.isnan(x).any()):
            return None
        return (np.asarray(function(x, axis=axis, keepdims=keep), np.int64),)

    return compute


@eagerly("TopK", inputs=2)
def _top_k(node: NodeAttributes) -> Compute | None:
    axis, largest = node.attr_int("axis", -1), node.attr_flag("largest", default=True)
    node.attr_flag("sorted", default=True)

    def compute(given: Arrays) -> Arrays | None:
        """Of equal elements, the first."""
        x, (k,) = given[0], ints_of(given[1])
        if not 0 <= k <= x.shape[axis] or x.dtype.kind not in _NUMBERS or (x.dtype.kind == "f" and np.isnan(x).any()):
            return None
        rank = x if not largest else -x if x.dtype.kind == "f" else ~x
        order = np.argsort(rank, axis, kind="stable").take(np.arange(k), axis)
        return np.take_along_axis(x, order, axis), order

    return compute


@eagerly("CumSum", inputs=2)
def _cumulated(node: NodeAttributes) -> Compute | None:
    if node.attr_flag("exclusive") or node.attr_flag("reverse"):
        return None

    def compute(given: Arrays) -> Arrays | None:
        x, (axis,) = given[0], ints_of(given[1])
        return (quietly(np.cumsum)(x, axis=axis, dtype=x.dtype),) if x.dtype.kind in "if" else None

    return compute
