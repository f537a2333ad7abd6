"""Operators that take so little time that NumPy answers before a program could be compiled: for values whose shapes
are seldom the same twice.

A function is made for a node once, and gives the results of what comes usually: numbers of 32 or 64 bits, small
integers, bools. What does not, None, is for the operator's conversion and its evaluation to give, or to refuse
(`autotune.graph.frontend.moved.evaluated`), which are the definition of these functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import onnx

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host.node import HostValue
from autotune.graph.ir import Array

Arrays = Sequence[Array]
Eager = Callable[[Sequence[HostValue]], "Sequence[HostValue] | None"]
"""Values of a node's inputs, None where one is left out, to its outputs; None where that is left to the definition."""
Compute = Callable[[Arrays], "Arrays | None"]
"""The same of tensors, of which all are given that must be."""
Make = Callable[[NodeAttributes], "Compute | None"]

_MAKE: dict[str, tuple[int, Make]] = {}
_PLAIN = frozenset("?bhilqBHILQfd")
"""NumPy's characters of the types that come usually."""


def eagerly(*ops: str, inputs: int = 1) -> Callable[[Make], Make]:
    """Register what makes the function of operators of the default domain. `inputs`: so many must be given."""

    def register(make: Make) -> Make:
        _MAKE.update(dict.fromkeys(ops, (inputs, make)))
        return make

    return register


def is_eager(proto: onnx.NodeProto) -> bool:
    """Whether an operator of numbers may run at once, on any shapes."""
    return proto.op_type in _MAKE and proto.domain in ("", "ai.onnx")


def eager(node: NodeAttributes) -> Eager | None:
    """The function of a node; None where its attributes are left to the definition."""
    least, make = _MAKE[node.op]
    compute = make(node)
    return None if compute is None else partial(_usual, compute, least)


def _usual(compute: Compute, least: int, values: Sequence[HostValue]) -> Sequence[HostValue] | None:
    given: list[Any] = list(values)
    while given and given[-1] is None:
        given.pop()
    if len(given) < least:
        return None
    for value in given:
        if not isinstance(value, np.ndarray) or value.dtype.char not in _PLAIN:
            return None
    try:
        found = compute(given)
    except (ValueError, IndexError, TypeError, OverflowError):  # the definition says what is wrong
        return None
    return None if found is None else [np.asarray(a, order="C") for a in found]


def _quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Without NumPy's warnings of what floats become."""

    def call(*arrays: Any, **more: Any) -> Any:
        if arrays[0].dtype.kind != "f":
            return function(*arrays, **more)
        with np.errstate(all="ignore"):
            return function(*arrays, **more)

    return call


def _ints(array: Array) -> list[int]:
    if array.dtype.kind not in "iu":
        raise TypeError("integers are needed")
    found: list[int] = array.reshape(-1).tolist()
    return found


def _axes(node: NodeAttributes) -> Callable[[Arrays], list[int] | None]:
    """Of an attribute, or since a later opset of the second input."""
    own = list(node.attr_ints("axes") or ()) if node.has("axes") else None
    return lambda given: own if own is not None else _ints(given[1]) if len(given) > 1 else None


# Movement ------------------------------------------------------------------------------------------------


@eagerly("Identity")
def _identity(node: NodeAttributes) -> Compute:
    return lambda given: given[:1]


@eagerly("Shape")
def _shape(node: NodeAttributes) -> Compute:
    start, end = node.attr_int("start", 0), node.attr_int("end", 2**31)
    return lambda given: (np.array(given[0].shape[start:end], np.int64),)


@eagerly("Size")
def _size(node: NodeAttributes) -> Compute:
    return lambda given: (np.array(given[0].size, np.int64),)


@eagerly("Gather", inputs=2)
def _gather(node: NodeAttributes) -> Compute:
    axis = node.attr_int("axis", 0)
    return lambda given: (given[0].take(given[1], axis),) if given[1].dtype.kind in "iu" else None


@eagerly("Concat")
def _concat(node: NodeAttributes) -> Compute | None:
    if not node.has("axis"):
        return None
    axis = node.attr_int("axis", 0)
    return lambda given: (np.concatenate(given, axis),) if all(a.dtype == given[0].dtype for a in given[1:]) else None


@eagerly("Unsqueeze")
def _unsqueeze(node: NodeAttributes) -> Compute:
    axes = _axes(node)
    return lambda given: (np.expand_dims(given[0], tuple(axes(given) or ())),)


@eagerly("Squeeze")
def _squeeze(node: NodeAttributes) -> Compute:
    wanted = _axes(node)

    def compute(given: Arrays) -> Arrays:
        axes = wanted(given)
        return (given[0].squeeze(None if axes is None else tuple(axes)),)

    return compute


@eagerly("Transpose")
def _transpose(node: NodeAttributes) -> Compute:
    order = node.attr_ints("perm")
    return lambda given: (given[0].transpose(order),)


@eagerly("Reshape", inputs=2)
def _reshape(node: NodeAttributes) -> Compute | None:
    if node.attr_flag("allowzero"):
        return None

    def compute(given: Arrays) -> Arrays:
        x, wanted = given[0], _ints(given[1])
        return (x.reshape([x.shape[n] if extent == 0 else extent for n, extent in enumerate(wanted)]),)

    return compute


@eagerly("Flatten")
def _flatten(node: NodeAttributes) -> Compute:
    axis = node.attr_int("axis", 1)

    def compute(given: Arrays) -> Arrays | None:
        x = given[0]
        if not -x.ndim <= axis <= x.ndim:
            return None
        cut = axis + x.ndim if axis < 0 else axis
        return (x.reshape(math.prod(x.shape[:cut]), math.prod(x.shape[cut:])),)

    return compute


@eagerly("Slice", inputs=3)
def _slice(node: NodeAttributes) -> Compute | None:
    if node.opset < 10:
        return None

    def compute(given: Arrays) -> Arrays | None:
        x, starts, ends = given[0], _ints(given[1]), _ints(given[2])
        axes = _ints(given[3]) if len(given) > 3 else list(range(len(starts)))
        steps = _ints(given[4]) if len(given) > 4 else [1] * len(starts)
        if not len(starts) == len(ends) == len(axes) == len(steps) or min(steps, default=1) < 1:
            return None
        window = [slice(None)] * x.ndim
        for start, end, axis, step in zip(starts, ends, axes, steps):
            window[axis] = slice(start, end, step)
        return (x[tuple(window)],)

    return compute


@eagerly("Split")
def _split(node: NodeAttributes) -> Compute:
    axis, parts = node.attr_int("axis", 0), len(node.proto.output)
    own = node.attr_ints("split")
    node.attr_int("num_outputs", 0)

    def compute(given: Arrays) -> Arrays | None:
        extent = given[0].shape[axis]
        step = -(-extent // parts)
        sizes = _ints(given[1]) if len(given) > 1 else list(own or [])
        sizes = sizes or [max(0, min(step, extent - n * step)) for n in range(parts)]
        if sum(sizes) != extent or len(sizes) != parts or min(sizes) < 0:
            return None
        return np.split(given[0], np.cumsum(sizes[:-1]), axis)

    return compute


@eagerly("Expand", inputs=2)
def _expand(node: NodeAttributes) -> Compute:
    def compute(given: Arrays) -> Arrays:
        return (np.broadcast_to(given[0], np.broadcast_shapes(given[0].shape, tuple(_ints(given[1])))),)

    return compute


@eagerly("Tile", inputs=2)
def _tile(node: NodeAttributes) -> Compute | None:
    if node.opset < 6:
        return None
    return lambda given: (np.tile(given[0], _ints(given[1])),) if given[1].size == given[0].ndim else None


@eagerly("ConstantOfShape")
def _constant_of_shape(node: NodeAttributes) -> Compute | None:
    value = node.attr_tensor("value")
    if value is not None and (value.size != 1 or value.dtype.char not in _PLAIN):
        return None
    number = np.zeros((), np.float32) if value is None else value.reshape(())
    return lambda given: (np.full(_ints(given[0]), number),)


@eagerly("Range", inputs=3)
def _range(node: NodeAttributes) -> Compute:
    def compute(given: Arrays) -> Arrays | None:
        start, limit, step = given
        if start.dtype.kind != "i" or not start.size == limit.size == step.size == 1 or not step.any():
            return None
        return (np.arange(start.item(), limit.item(), step.item(), dtype=start.dtype),)

    return compute


@eagerly("GatherElements", inputs=2)
def _gather_elements(node: NodeAttributes) -> Compute:
    axis = node.attr_int("axis", 0)
    return lambda given: (given[0][_along(given[1], axis)],)


def _along(indices: Array, axis: int) -> tuple[Array, ...]:
    """Places of elements: those of `indices` but along an axis."""
    if indices.dtype.kind not in "iu":
        raise TypeError("integers are needed")
    places = list(np.ogrid[tuple(slice(extent) for extent in indices.shape)])
    places[axis] = indices
    return tuple(places)


@eagerly("GatherND", inputs=2)
def _gather_nd(node: NodeAttributes) -> Compute | None:
    if node.attr_int("batch_dims", 0):
        return None
    return lambda given: (given[0][_places(given[1])],)


def _places(indices: Array) -> tuple[Array, ...]:
    if indices.dtype.kind not in "iu":
        raise TypeError("integers are needed")
    return tuple([indices[..., n] for n in range(indices.shape[-1])])


_SCATTERS: dict[str, Callable[[Array, Any, Array], None]] = {
    "none": lambda x, places, more: x.__setitem__(places, more),
    "add": np.add.at, "mul": np.multiply.at, "max": np.maximum.at, "min": np.minimum.at,
}  # fmt: skip


@eagerly("ScatterElements", "ScatterND", inputs=3)
def _scatter(node: NodeAttributes) -> Compute | None:
    scatter, axis = _SCATTERS.get(node.attr_string("reduction", "none")), node.attr_int("axis", 0)
    if scatter is None:
        return None

    def compute(given: Arrays) -> Arrays | None:
        x, indices, more = given
        if more.dtype != x.dtype or more.dtype.kind == "b":
            return None
        if node.op == "ScatterElements" and more.shape != indices.shape:
            return None
        places = _along(indices, axis) if node.op == "ScatterElements" else _places(indices)
        found = x.copy()
        scatter(found, places, more)
        return (found,)

    return compute


@eagerly("Where", inputs=3)
def _where(node: NodeAttributes) -> Compute:
    def compute(given: Arrays) -> Arrays | None:
        condition, x, y = given
        return (np.where(condition, x, y),) if condition.dtype.kind == "b" and x.dtype == y.dtype else None

    return compute


# Elementwise ---------------------------------------------------------------------------------------------

_NUMBERS, _FLOATS, _BOOLS = "iuf", "f", "b"
_SAME: dict[str, tuple[Any, str]] = {
    "Add": (np.add, _NUMBERS), "Sub": (np.subtract, _NUMBERS), "Mul": (np.multiply, _NUMBERS),
    "Div": (np.divide, _FLOATS), "And": (np.logical_and, _BOOLS), "Or": (np.logical_or, _BOOLS),
    "Xor": (np.logical_xor, _BOOLS), "Equal": (np.equal, _NUMBERS + _BOOLS), "Greater": (np.greater, _NUMBERS),
    "GreaterOrEqual": (np.greater_equal, _NUMBERS), "Less": (np.less, _NUMBERS),
    "LessOrEqual": (np.less_equal, _NUMBERS),
}  # fmt: skip
_ONE: dict[str, tuple[Any, str]] = {
    "Abs": (np.abs, _FLOATS), "Ceil": (np.ceil, _FLOATS), "Exp": (np.exp, _FLOATS), "Floor": (np.floor, _FLOATS),
    "Log": (np.log, _FLOATS), "Neg": (np.negative, "if"), "Not": (np.logical_not, _BOOLS),
    "Reciprocal": (lambda x: 1 / x, _FLOATS), "Relu": (lambda x: np.maximum(x, x.dtype.type(0)), _FLOATS),
    "Round": (np.rint, _FLOATS), "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), _FLOATS), "Sign": (np.sign, "if"),
    "Sqrt": (np.sqrt, _FLOATS), "Tanh": (np.tanh, _FLOATS),
}  # fmt: skip


@eagerly(*_SAME, inputs=2)
def _of_two(node: NodeAttributes) -> Compute | None:
    function, kinds = _quietly(_SAME[node.op][0]), _SAME[node.op][1]
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


@eagerly(*_ONE)
def _of_one(node: NodeAttributes) -> Compute:
    function, kinds = _quietly(_ONE[node.op][0]), _ONE[node.op][1]
    return lambda given: (np.asarray(function(given[0])),) if given[0].dtype.kind in kinds else None


@eagerly("Max", "Min")
def _extreme(node: NodeAttributes) -> Compute | None:
    function = _quietly(np.maximum if node.op == "Max" else np.minimum)
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
    if to.char not in _PLAIN:
        return None
    limit = 2.0 ** (8 * to.itemsize - 1)

    def compute(given: Arrays) -> Arrays | None:
        x = given[0]
        if x.dtype.kind == "f" and to.kind in "iu":
            least = -limit if to.kind == "i" else 0.0
            if not ((x >= least) & (x < limit)).all():
                return None
        return (_quietly(np.ndarray.astype)(x, to),)

    return compute


# Along axes ----------------------------------------------------------------------------------------------

_REDUCE: dict[str, Any] = {
    "ReduceMax": np.max, "ReduceMean": np.mean, "ReduceMin": np.min, "ReduceProd": np.prod, "ReduceSum": np.sum,
}  # fmt: skip


@eagerly(*_REDUCE)
def _reduce(node: NodeAttributes) -> Compute:
    function, keep = _quietly(_REDUCE[node.op]), node.attr_flag("keepdims", default=True)
    wanted, nothing = _axes(node), node.attr_flag("noop_with_empty_axes")

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
        found = _quietly(lambda x: np.exp(x - x.max(axis, keepdims=True)))(x)
        return (_quietly(np.divide)(found, found.sum(axis, keepdims=True)),)

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
        x, (k,) = given[0], _ints(given[1])
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
        x, (axis,) = given[0], _ints(given[1])
        return (_quietly(np.cumsum)(x, axis=axis, dtype=x.dtype),) if x.dtype.kind in "if" else None

    return compute
