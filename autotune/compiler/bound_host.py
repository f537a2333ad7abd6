"""Host operators on the way of a run: compiled code that is told once what it may know, so that a run merely calls it.

What comes has one form in every run. Scratch, room for results and arguments are made for it; what is found lies there
until the next run on this way. Where an input lies at the same place in every run, it is not even looked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Union

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host import HostValue
from autotune.runtime.address import place_of
from autotune.runtime.boxes import BoxesOf
from autotune.runtime.executor import Array
from autotune.runtime.nonzero import NonzeroOf
from autotune.runtime.unique import UniqueOf

Values = Mapping[str, HostValue]
OnWay = Callable[[Values], Union[Sequence[HostValue], None]]
"""All values of a run to the node's results; None is for the operator's definition to give, or to refuse."""


@dataclass(frozen=True, slots=True)
class Found:
    """NonZero of what lies at the same place in every run: several are found by one call, see `NonzeroOfEach`."""

    of: NonzeroOf
    place: int

    def __call__(self, values: Values) -> Sequence[HostValue]:
        return (self.of.at(self.place),)


class Way(NamedTuple):
    """What runs a node on a way.

    Attributes:
        places: its results lie at the same place in every run. `fresh`: they are nobody else's.
    """

    run: OnWay
    places: bool = False
    fresh: bool = False


FEW = 1 << 13
"""Elements of inputs and results up to which a way keeps room for them; where there are more, what is around the
computing counts for nothing."""


def bound(node: NodeAttributes, reads: Sequence[str | None], known: Values, fixed: Collection[str]) -> Way | None:
    """What runs a node on a way; None: as elsewhere.

    Args:
        reads: names of its inputs, None where one is left out.
        known: values, with the forms that they have in every run.
        fixed: names of those among them that lie at the same place in every run.
    """
    if node.op not in _BOUND or any(name is not None and name not in known for name in reads):
        return None
    try:
        return _BOUND[node.op](node, [_Input(name, known, fixed) for name in reads])
    except ModelError:  # its definition says what is wrong
        return None


class _Input:
    """An input of a node.

    Attributes:
        array: a value of its form; None where it is none.
        place: where it lies; None where that differs from run to run.
    """

    def __init__(self, name: str | None, known: Values, fixed: Collection[str]) -> None:
        value = None if name is None else known[name]
        self.name = name or ""
        self.array = value if isinstance(value, np.ndarray) and 0 < value.size <= FEW else None
        self.place = place_of(self.array) if self.array is not None and name in fixed else None

    def where(self, values: Values) -> int | None:
        """The address of what came in a run; None unless it is contiguous."""
        return self.place if self.place is not None else place_of(values[self.name])  # type: ignore[arg-type]

    def number(self, otherwise: float) -> float | None:
        """The number that is the same in every run, `otherwise` where there is none; None where runs give it."""
        if not self.name:
            return otherwise
        return None if self.array is None or self.place is None or self.array.size != 1 else self.array.item()


def _nonzero(node: NodeAttributes, inputs: Sequence[_Input]) -> Way | None:
    (x,) = inputs
    form = x.array
    if form is None or not form.ndim or form.dtype.kind not in "biuf":
        return None
    found = NonzeroOf(form.shape, form.dtype)
    if x.place is not None:
        return Way(Found(found, x.place), places=True)

    def on_way(values: Values) -> Sequence[HostValue]:
        place = x.where(values)
        if place is None:
            copied: Array = np.ascontiguousarray(values[x.name])
            return (found.at(copied.ctypes.data),)
        return (found.at(place),)

    return Way(on_way, places=True)


def _masked_select(node: NodeAttributes, inputs: Sequence[_Input]) -> Way | None:
    x, mask = inputs
    form, kept = x.array, mask.array
    if form is None or kept is None or mask.place is None or kept.dtype != np.bool_ or form.dtype.hasobject:
        return None
    rank = kept.ndim
    if not rank or kept.shape != form.shape[:rank]:
        return None
    flat, rows = kept.reshape(-1), (kept.size, *form.shape[rank:])  # of each run: the mask lies where this one does
    if x.place is not None:
        given = form.reshape(rows)
        return Way(lambda values: (given.compress(flat, 0),), fresh=True)
    return Way(lambda values: (values[x.name].reshape(rows).compress(flat, 0),), fresh=True)  # type: ignore[union-attr]


def _boxes(node: NodeAttributes, inputs: Sequence[_Input]) -> Way | None:
    if len(inputs) < 2:
        return None
    (boxes, scores), rest = inputs[:2], inputs[2:]
    if boxes.array is None or scores.array is None:
        return None
    shape = scores.array.shape
    if len(shape) != 3 or boxes.array.shape != (shape[0], shape[2], 4):
        return None
    if not boxes.array.dtype == scores.array.dtype == np.float32:
        return None
    limits = [given.number(otherwise) for given, otherwise in zip(rest, (0.0, 0.0, -math.inf))]
    limits += [0.0, 0.0, -math.inf][len(limits) :]
    most, overlap, least = limits
    if most is None or overlap is None or least is None or most < 1 or not 0 <= overlap <= 1:
        return None
    if math.prod(shape[:2]) * min(int(most), shape[2]) > FEW:
        return None
    found = BoxesOf(*shape, int(most), overlap, least, node.attr_flag("center_point_box"))

    def on_way(values: Values) -> Sequence[HostValue] | None:
        one, other = boxes.where(values), scores.where(values)
        return None if one is None or other is None else (found.at(one, other),)

    return Way(on_way)


def _unique(node: NodeAttributes, inputs: Sequence[_Input]) -> Way | None:
    (x,) = inputs
    form = x.array
    if form is None or form.dtype not in (np.float32, np.int64) or node.has("axis") or not node.attr_int("sorted", 1):
        return None
    found = UniqueOf(form.size, form.dtype, alone=not any(node.proto.output[1:]))

    def on_way(values: Values) -> Sequence[HostValue] | None:
        place = x.where(values)
        return None if place is None else found.of(values[x.name], place)  # type: ignore[arg-type]

    return Way(on_way)


_BOUND: Mapping[str, Callable[[NodeAttributes, Sequence[_Input]], Way | None]] = {
    "MaskedSelect": _masked_select,
    "NonMaxSuppression": _boxes,
    "NonZero": _nonzero,
    "Unique": _unique,
}
