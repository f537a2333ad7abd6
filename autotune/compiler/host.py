"""Host operators at run time: compiled code where there is some, with the same results as `autotune.graph.host`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.moved import MOVES, evaluated, move_strings
from autotune.graph.host import (
    BROADCAST,
    HostValue,
    by_place,
    eager,
    host_function,
    is_eager,
    run_host,
    scalar_nonzero,
    value_function,
)
from autotune.runtime.boxes import keep_boxes
from autotune.runtime.nonzero import nonzero
from autotune.runtime.unique import unique

Runner = Callable[[Sequence[HostValue]], Sequence[HostValue]]
"""Values of a node's inputs, None where one is left out, to its outputs: C-contiguous arrays. Of outputs that nobody
wants, the last ones may be missing."""
Quick = Callable[[Sequence[HostValue]], "Sequence[HostValue] | None"]
"""The same for what comes usually; None is for the operator's definition to give, or to refuse."""


_OF_STRINGS = ("Cast", "Equal")
"""Operators whose host functions are for strings alone."""
MOST_AXES = 64
"""NumPy's."""


def prepared(node: NodeAttributes) -> Runner:
    """What runs a node, for any number of runs: its attributes are read here, once."""
    define: Runner = functools.partial(run_host, node)
    if host_function(node.proto) is None and (is_eager(node.proto) or node.op in MOVES):
        define = functools.partial(_defined, node)
    make = _QUICK.get(node.op, eager if is_eager(node.proto) else None)
    try:
        quick = None if make is None else make(node)
    except ModelError:  # its definition says what is wrong
        quick = None
    if quick is None:
        return define

    def run(values: Sequence[HostValue]) -> Sequence[HostValue]:
        found = quick(values)
        return define(values) if found is None else found

    return run


def run_on_host(node: NodeAttributes, values: Sequence[HostValue]) -> Sequence[HostValue]:
    """`run_host`, by compiled code where possible; strings are moved."""
    return prepared(node)(values)


def _defined(node: NodeAttributes, values: Sequence[HostValue]) -> Sequence[HostValue]:
    """The results of a node that programs compute where all that it reads are numbers."""
    numbers = all(value is None or (isinstance(value, np.ndarray) and value.dtype != object) for value in values)
    if node.op in MOVES and not numbers:
        return move_strings(node, values)
    if value_function(node.proto) is None or (numbers and node.op in _OF_STRINGS):
        return evaluated(node, values)
    return run_host(node, values)


def _compress(node: NodeAttributes) -> Quick:
    axis = node.attr_int("axis", 0) if node.has("axis") else None

    def quick(values: Sequence[HostValue]) -> Sequence[HostValue] | None:
        x, condition = _first(values, 2)
        if not (isinstance(x, np.ndarray) and isinstance(condition, np.ndarray)):
            return None
        if condition.dtype.kind != "b" or condition.ndim != 1 or x.dtype.hasobject:
            return None
        try:
            return (x.compress(condition, axis),)
        except IndexError:  # no such axis, or no such place in it
            return None

    return quick


def _masked_select(node: NodeAttributes) -> Quick:
    def quick(values: Sequence[HostValue]) -> Sequence[HostValue] | None:
        x, mask = _first(values, 2)
        if not (isinstance(x, np.ndarray) and isinstance(mask, np.ndarray)) or mask.dtype.kind != "b":
            return None
        rank = mask.ndim
        if not rank or mask.shape != x.shape[:rank]:
            return None
        return (x.reshape(mask.size, *x.shape[rank:]).compress(mask.reshape(-1), 0),)

    return quick


def _unique(node: NodeAttributes) -> Quick | None:
    in_order = bool(node.attr_int("sorted", 1))
    alone = in_order and not any(node.proto.output[1:])

    def quick(values: Sequence[HostValue]) -> Sequence[HostValue] | None:
        (x,) = _first(values, 1)
        if not isinstance(x, np.ndarray):
            return None
        found = unique(x, alone=alone)
        if found is None or in_order:
            return found
        first, inverse, counts = by_place(*found[1:])
        return x.reshape(-1)[first], first, inverse, counts

    return None if node.has("axis") else quick


def _non_max_suppression(node: NodeAttributes) -> Quick:
    centred = node.attr_flag("center_point_box")

    def quick(values: Sequence[HostValue]) -> Sequence[HostValue] | None:
        boxes, scores, limit, overlap, least = _first(values, 5)
        if not (isinstance(boxes, np.ndarray) and isinstance(scores, np.ndarray)):
            return None
        shape = scores.shape
        if len(shape) != 3 or boxes.shape != (shape[0], shape[2], 4):
            return None
        try:
            most, share, bound = _number(limit, 0), _number(overlap, 0), _number(least, -math.inf)
        except (AttributeError, ValueError):  # lists, or tensors of several elements
            return None
        if not 0 <= share <= 1:
            return None
        return (keep_boxes(boxes, scores, int(most), share, bound, centred),)

    return quick


def _number(value: HostValue, otherwise: float) -> float:
    found: float = otherwise if value is None else value.item()  # type: ignore[union-attr]
    return found


def _nonzero(node: NodeAttributes) -> Quick:
    def quick(values: Sequence[HostValue]) -> Sequence[HostValue] | None:
        (x,) = _first(values, 1)
        if not isinstance(x, np.ndarray) or x.dtype.hasobject:
            return None
        return (nonzero(x),) if x.ndim else scalar_nonzero(x)

    return quick


def value_bytes(value: HostValue) -> int:
    """Bytes of a tensor, or of all in a sequence."""
    return value.nbytes if isinstance(value, np.ndarray) else sum(item.nbytes for item in value or ())


def _first(values: Sequence[HostValue], count: int) -> Sequence[HostValue]:
    """So many values, None for those that are left out at the end."""
    return values if len(values) == count else (*values, *[None] * count)[:count]


def _gathered(node: NodeAttributes, values: Sequence[HostValue]) -> int:
    x, indices = _first(values, 2)
    axis = node.attr_int("axis", 0)
    if not (isinstance(x, np.ndarray) and isinstance(indices, np.ndarray)) or not -x.ndim <= axis < x.ndim:
        return 0  # its definition says what is wrong
    rows: int = x.nbytes // max(x.shape[axis], 1)
    return rows * indices.size


def _joined(node: NodeAttributes, values: Sequence[HostValue]) -> int:
    return sum(map(value_bytes, values))


def _repeated(node: NodeAttributes, values: Sequence[HostValue]) -> int:
    """Of Tile, whose last input says how often along each axis."""
    x, times = _first(values, 2)
    return value_bytes(x) * math.prod(max(n, 1) for n in _extents(times))


def _filled(node: NodeAttributes, values: Sequence[HostValue]) -> int:
    """Of ConstantOfShape, at most."""
    return 8 * math.prod(_extents(values[0] if values else None))


def _spread(node: NodeAttributes, values: Sequence[HostValue]) -> int:
    """Of what broadcasts; of Expand, whose last input is a shape."""
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    shapes = [array.shape for array in arrays]
    if node.op == "Expand" and arrays:
        shapes[-1] = _extents(arrays[-1])
    try:
        count = math.prod(np.broadcast_shapes(*shapes))
    except ValueError:  # its definition says what is wrong
        return 0
    return count * max((array.dtype.itemsize for array in arrays), default=0)


def _placed(node: NodeAttributes, values: Sequence[HostValue]) -> int:
    """Of GatherND: as many parts as there are tuples of places."""
    x, places = _first(values, 2)
    if not (isinstance(x, np.ndarray) and isinstance(places, np.ndarray)) or not places.ndim:
        return 0
    return math.prod(places.shape[:-1]) * x.itemsize * math.prod(x.shape[places.shape[-1] :])


def _looked_up(node: NodeAttributes, values: Sequence[HostValue]) -> int:
    """Of GatherElements."""
    x, places = _first(values, 2)
    return x.itemsize * places.size if isinstance(x, np.ndarray) and isinstance(places, np.ndarray) else 0


def _extents(shape: HostValue) -> tuple[int, ...]:
    """What a list of integers says; nothing where it is none: the definition says what is wrong."""
    if not isinstance(shape, np.ndarray) or shape.dtype.kind not in "iu" or shape.size > MOST_AXES:
        return ()
    return tuple(max(int(n), 0) for n in shape.reshape(-1))


def _counted(node: NodeAttributes, values: Sequence[HostValue]) -> int:
    try:
        start, limit, step = (_number(value, 0) for value in _first(values, 3))
    except (AttributeError, ValueError):
        return 0
    return 8 * max(0, math.ceil((limit - start) / step)) if step else 0


GROWS: Mapping[str, Callable[[NodeAttributes, Sequence[HostValue]], int]] = {
    "Concat": _joined,
    "ConcatFromSequence": _joined,
    "ConstantOfShape": _filled,
    "Gather": _gathered,
    "GatherElements": _looked_up,
    "GatherND": _placed,
    "Range": _counted,
    "Tile": _repeated,
    **dict.fromkeys(("Expand", "Where", *BROADCAST), _spread),
}
"""Operators that move elements and may give more of them than they are given: how many bytes, before they do."""

_QUICK: Mapping[str, Callable[[NodeAttributes], Quick | None]] = {
    "Compress": _compress,
    "MaskedSelect": _masked_select,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _nonzero,
    "Unique": _unique,
}
