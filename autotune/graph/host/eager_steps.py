"""Eager operators on a way that runs take again: what they read has the types that it had, and constants are known.

A step takes its operands from the values of a run and adds its result to them, so that nothing is looked at twice: what
`eager` asks of each run is asked here when the step is made. What is not usual in just this run raises one of `LEFT`;
then the operator is run as elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from autotune.errors import ModelError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host.eager import MAKERS, PLAIN, ints_of, is_eager
from autotune.graph.host.eager_numbers import ONE, SAME
from autotune.graph.ir import Array

LEFT = (ValueError, IndexError, TypeError, OverflowError)
"""What a step raises that is left to the definition of its operator."""

Values = dict[str, Any]
Step = Callable[[Values], None]


@dataclass(frozen=True)
class Operand:
    """An input of a node.

    Attributes:
        array: what it was in a run.
        constant: it is that in every run.
    """

    name: str
    array: Array
    constant: bool

    @property
    def kind(self) -> str:
        return self.array.dtype.kind


Operands = Sequence[Operand]
Make = Callable[[NodeAttributes, Operands, str], "Step | None"]
_STEPS: dict[str, Make] = {}
_MOVES = set[str]()


def step_of(node: NodeAttributes, given: Operands) -> Step | None:
    """What runs a node with such inputs, its first result named as the node has it; None where nothing is quicker than
    `eager` is. NumPy's warnings of floats are for the caller to switch off."""
    if not is_eager(node.proto) or node.op not in _STEPS or len(given) < MAKERS[node.op][0]:
        return None
    if any(one.array.dtype.char not in PLAIN for one in given):
        return None
    try:
        usual = MAKERS[node.op][1](node) is not None
        return _STEPS[node.op](node, given, node.proto.output[0]) if usual else None
    except ModelError:  # its definition says what is wrong
        return None


def computes(node: NodeAttributes) -> bool:
    """Whether a node's step does more than to move elements, so that NumPy may warn of what becomes of floats."""
    return node.op not in _MOVES


def _steps(*ops: str, moves: bool = False) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        _STEPS.update(dict.fromkeys(ops, make))
        if moves:
            _MOVES.update(ops)
        return make

    return register


def _array(found: Any) -> Array:
    """NumPy gives a number where a result has no axes."""
    return found if type(found) is np.ndarray else np.asarray(found)


# Movement ------------------------------------------------------------------------------------------------


@_steps("Shape", moves=True)
def _shape(node: NodeAttributes, given: Operands, out: str) -> Step:
    x, start, end = given[0].name, node.attr_int("start", 0), node.attr_int("end", 2**31)

    def step(values: Values) -> None:
        extents = values[x].shape[start:end]
        found = np.empty(len(extents), np.int64)  # a third of the time of an array of a tuple
        for n, extent in enumerate(extents):
            found[n] = extent
        values[out] = found

    return step


@_steps("Gather", moves=True)
def _gather(node: NodeAttributes, given: Operands, out: str) -> Step | None:
    x, places, axis = given[0].name, given[1].name, node.attr_int("axis", 0)
    if given[1].kind not in "iu":
        return None

    def step(values: Values) -> None:
        found = values[x].take(values[places], axis)
        values[out] = found if type(found) is np.ndarray else np.asarray(found)

    return step


@_steps("Reshape", moves=True)
def _reshape(node: NodeAttributes, given: Operands, out: str) -> Step | None:
    x, form = given[0].name, given[1]
    wanted = ints_of(form.array) if form.constant and form.kind in "iu" else None
    if wanted is None:
        return None
    if 0 not in wanted:

        def step(values: Values) -> None:
            values[out] = values[x].reshape(wanted)

        return step

    def kept(values: Values) -> None:
        array = values[x]
        values[out] = array.reshape([array.shape[n] if extent == 0 else extent for n, extent in enumerate(wanted)])

    return kept


@_steps("Unsqueeze", "Squeeze", moves=True)
def _squeeze(node: NodeAttributes, given: Operands, out: str) -> Step | None:
    x, rank = given[0].name, given[0].array.ndim
    if node.has("axes"):
        axes = list(node.attr_ints("axes") or ())
    elif len(given) == 2 and given[1].constant and given[1].kind in "iu":
        axes = ints_of(given[1].array)
    else:
        return None
    whole = rank + len(axes) if node.op == "Unsqueeze" else rank
    places = {axis + whole if axis < 0 else axis for axis in axes}
    if len(places) < len(axes) or not places <= set(range(whole)):
        return None  # its definition says what is wrong
    if node.op == "Squeeze":
        alone = tuple(places)

        def squeezed(values: Values) -> None:
            array = values[x]
            if array.ndim != rank:
                raise ValueError
            values[out] = array.squeeze(alone)

        return squeezed
    window = tuple(None if axis in places else slice(None) for axis in range(whole))

    def step(values: Values) -> None:
        array = values[x]
        if array.ndim != rank:
            raise ValueError
        values[out] = array[window]

    return step if rank else None


@_steps("Transpose", moves=True)
def _transpose(node: NodeAttributes, given: Operands, out: str) -> Step:
    x, order = given[0].name, node.attr_ints("perm")

    def step(values: Values) -> None:
        values[out] = np.asarray(values[x].transpose(order), order="C")

    return step


@_steps("Concat", moves=True)
def _concat(node: NodeAttributes, given: Operands, out: str) -> Step | None:
    names, axis = [one.name for one in given], node.attr_int("axis", 0)
    if any(one.array.dtype != given[0].array.dtype for one in given):
        return None

    def step(values: Values) -> None:
        values[out] = np.concatenate([values[name] for name in names], axis)

    return step


@_steps("GatherND", moves=True)
def _gather_nd(node: NodeAttributes, given: Operands, out: str) -> Step | None:
    x, places = given[0].name, given[1].name
    if given[1].kind not in "iu":
        return None

    def step(values: Values) -> None:
        indices = values[places]
        if indices.ndim != 2:
            raise ValueError
        values[out] = np.asarray(values[x][tuple(indices.T)], order="C")

    return step


@_steps("ScatterND")
def _scatter_nd(node: NodeAttributes, given: Operands, out: str) -> Step | None:
    """Into rows, each of which is named once."""
    x, places, more = (one.name for one in given)
    reduction = node.attr_string("reduction", "none")
    combine: Any = {"add": np.add, "mul": np.multiply}.get(reduction)
    alike = given[0].array.dtype == given[2].array.dtype and given[0].kind != "b"
    if reduction not in ("none", "add", "mul") or not alike or given[1].kind not in "iu":
        return None

    def step(values: Values) -> None:
        array, indices, new = values[x], values[places], values[more]
        if indices.ndim != 2 or indices.shape[1] != 1 or new.shape != (len(indices), *array.shape[1:]):
            raise ValueError
        rows = indices.reshape(-1)
        if combine is not None:
            named = np.zeros(array.shape[0], np.bool_)
            named[rows] = True
            if np.count_nonzero(named) < rows.size:
                raise ValueError
            new = combine(array.take(rows, 0), new)
        found = array.copy()
        found[rows] = new
        values[out] = found

    return step


# Numbers -------------------------------------------------------------------------------------------------


@_steps(*SAME)
def _of_two(node: NodeAttributes, given: Operands, out: str) -> Step | None:
    function, kinds = SAME[node.op]
    one, other = given[0].name, given[1].name
    if given[0].kind not in kinds or given[0].array.dtype != given[1].array.dtype:
        return None

    def step(values: Values) -> None:
        values[out] = _array(function(values[one], values[other]))

    return step


@_steps(*ONE)
def _of_one(node: NodeAttributes, given: Operands, out: str) -> Step | None:
    function, kinds = ONE[node.op]
    x = given[0].name
    if given[0].kind not in kinds:
        return None

    def step(values: Values) -> None:
        values[out] = _array(function(values[x]))

    return step


@_steps("Max", "Min")
def _extreme(node: NodeAttributes, given: Operands, out: str) -> Step | None:
    if len(given) != 2 or given[0].kind not in "iuf" or given[0].array.dtype != given[1].array.dtype:
        return None
    function, largest, whole = (
        np.maximum if node.op == "Max" else np.minimum,
        node.op == "Max",
        given[0].kind != "f",
    )
    one, other = given[0].name, given[1].name

    def step(values: Values) -> None:
        a, b = values[one], values[other]
        if whole and a.size == 1 and a.shape == b.shape:  # of extents, mostly
            values[out] = a if (a.item() > b.item()) is largest else b
        else:
            values[out] = _array(function(a, b))

    return step


@_steps("Cast")
def _cast(node: NodeAttributes, given: Operands, out: str) -> Step | None:
    x, to = given[0].name, onnx.helper.tensor_dtype_to_np_dtype(node.attr_int("to", 0))
    if given[0].kind == "f" and to.kind in "iu":  # what floats become must be looked at
        return None

    def step(values: Values) -> None:
        values[out] = values[x].astype(to)

    return step


@_steps("TopK")
def _top_k(node: NodeAttributes, given: Operands, out: str) -> Step | None:
    """Of one row. Of equal elements, the first."""
    x, count, largest = given[0].name, given[1].name, node.attr_flag("largest", default=True)
    if given[0].kind not in "iuf" or given[1].kind not in "iu":
        return None
    places, floats = node.proto.output[1] if len(node.proto.output) > 1 else "", given[0].kind == "f"

    def step(values: Values) -> None:
        array, k = values[x], values[count].item()
        if array.ndim != 1 or not 0 <= k <= array.size:
            raise ValueError
        rank = array if not largest else -array if floats else ~array
        order = rank.argsort(kind="stable")
        if floats and order.size:
            last = array.item(order[-1])
            if last != last:  # NaNs come last
                raise ValueError
        order = order[:k]
        values[out] = array.take(order)
        if places:
            values[places] = order

    return step
