"""What is written in place of values whose first dimension is several joined to one, and which those are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.buckets.dimensions import Dimensions
from autotune.graph.frontend.buckets.facts import CannotPad, Extent
from autotune.graph.frontend.entry import Entry
from autotune.graph.ir import Array

OPSET = 17
"""Of the nodes that are written here."""

STEPS = 64
"""Nodes between a range and a place that is looked up."""

Target = Sequence["int | str"]
"""Dimensions: numbers, and names of lists that hold one."""


@dataclass(frozen=True, slots=True)
class Apart:
    """What is computed in place of a value whose first dimension is joined.

    Attributes:
        name: of it.
        dims: of it.
        lead: how many of them are joined in the value.
    """

    name: str
    dims: tuple[Extent, ...]
    lead: int

    @property
    def rank(self) -> int:
        """Of the value."""
        return 1 + len(self.rest)

    @property
    def joined(self) -> tuple[Extent, ...]:
        return self.dims[: self.lead]

    @property
    def rest(self) -> tuple[Extent, ...]:
        """The dimensions of the value behind its first."""
        return self.dims[self.lead :]


class Written:
    """The nodes so far, in order, and the values that are kept apart."""

    def __init__(self, known: Dimensions) -> None:
        self.known = known
        self.apart: dict[str, Apart] = {}
        self.shapes: dict[str, Apart] = {}  # by the name of a list, the value whose dimensions it holds
        self._there: set[str] = set()
        self._made: dict[str, Entry] = {}
        self._fresh = 0

    def given(self, node: NodeAttributes) -> list[Apart | None]:
        """Its inputs, where they are kept apart."""
        return [self.apart.get(name) for name in node.proto.input]

    def only(self, node: NodeAttributes) -> Apart:
        """The first input, if that is the only one that is kept apart. Raises CannotPad."""
        first, *others = self.given(node)
        if first is None or any(one is not None for one in others):
            raise CannotPad("another input has joined dimensions")
        return first

    def as_it_was(self, name: str) -> None:
        """Have a value itself, too."""
        apart = self.apart.get(name)
        if apart is not None and name not in self._there:
            self._there.add(name)
            self.reshape(apart.name, (-1, *self.target(apart.name, apart.dims)[apart.lead :]), name)

    def keep(self, name: str, apart: str, lead: int) -> None:
        """`apart` is what is computed in place of `name`. Raises CannotPad: too little is known of it, or it is empty,
        and a Reshape cannot ask for that beside a dimension that it finds by itself."""
        dims = self.known.dims(apart)
        if dims is None or None in dims[:lead] or 0 in dims:
            raise CannotPad("what is joined in it is not known")
        self.apart[name] = Apart(apart, dims, lead)

    # -- what is known

    def dims(self, name: str) -> tuple[Extent, ...]:
        """Of a value. Raises CannotPad: not even its rank is known."""
        found = self.known.dims(name)
        if found is None:
            raise CannotPad("an input is of unknown rank")
        return found

    def ints(self, node: NodeAttributes, position: int, name: str) -> tuple[int, ...] | None:
        """Integers that are an attribute in old opsets, an input in new ones; None where they are not given. Raises
        CannotPad."""
        if len(node.proto.input) <= position or not node.proto.input[position]:
            return node.attr_ints(name)
        found = self.known.elements(node.proto.input[position]) or (None,)
        numbers = tuple(n for n in found if isinstance(n, int))
        if len(numbers) < len(found):
            raise CannotPad(f"{name} is no constant")
        return numbers

    def axis(self, apart: Apart, axis: int) -> int:
        """An axis of a value as one of what is computed in its place. Raises CannotPad: it is the joined one."""
        place = axis + apart.rank if axis < 0 else axis
        if not 0 < place < apart.rank:
            raise CannotPad("it works along the joined dimension")
        return place + apart.lead - 1

    def counted(self, name: str, extent: Extent) -> bool:
        """Whether the elements of a value are 0, 1, 2, ... below an extent."""
        for _ in range(STEPS):
            elements, array = self.known.elements(name), self.known.array(name)
            if isinstance(extent, int) and elements:
                return all(isinstance(n, int) and 0 <= n < extent for n in elements)
            if array is not None:
                below = extent if isinstance(extent, int) else 1  # of an open dimension there is one element
                return array.dtype.kind in "iu" and array.size > 0 and 0 <= array.min() <= array.max() < below
            if name not in self._made:
                return False
            node = self._made[name].proto
            if node.op_type == "Range":
                first, step = self.known.elements(node.input[0]), self.known.elements(node.input[2])
                return (first, step) == ((0,), (1,)) and self.known.dims(name) == (extent,)
            if node.op_type not in ("Cast", "Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze"):
                return False
            name = node.input[0]
        return False

    def in_line(self, index: str, length: Extent) -> tuple[str, str] | None:
        """(i, j) where an index is `i * length + j`; None where it is nothing of the kind."""
        total = self._made.get(index)
        for one, other in _both_ways(total, "Add"):
            for row, factor in _both_ways(self._made.get(one), "Mul"):
                if self.known.elements(factor) == (length,):
                    return row, other
        return None

    # -- what is written

    def append(self, entry: Entry) -> None:
        self._made.update(dict.fromkeys(entry.writes, entry))
        self.known.append(entry)

    def node(self, op: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        """Write a node; the name of its result, a new one where none is given."""
        if not name:
            self._fresh += 1
            name = f"autotune.apart/{self._fresh}"
        self.append(Entry.of(helper.make_node(op, inputs, [name], name=name, **attributes), OPSET))
        return name

    def again(self, node: NodeAttributes, inputs: Sequence[str], lead: int, **attributes: Any) -> None:
        """The same node for other inputs, with some other attributes; its results are kept apart."""
        proto = with_inputs(node.proto, inputs)
        kept = [a for a in node.proto.attribute if a.name not in attributes]
        del proto.attribute[:]
        proto.attribute.extend([*kept, *(helper.make_attribute(key, value) for key, value in attributes.items())])
        for n, name in enumerate(node.proto.output):
            proto.output[n] = f"autotune.apart/{name}" if name else ""
        self.append(Entry.of(proto, node.opset))
        for name, made in zip(node.proto.output, proto.output):
            if name:
                self.keep(name, made, lead)

    def constant(self, value: int | Sequence[int] | Array) -> str:
        self._fresh += 1
        name = f"autotune.apart/constant{self._fresh}"
        self.known.constant(name, value if isinstance(value, np.ndarray) else np.asarray(value, np.int64))
        return name

    def extent(self, name: str, axis: int) -> str:
        """A list of one dimension of a value."""
        return self.node("Shape", [name], start=axis, end=axis + 1)

    def target(self, name: str, dims: Sequence[Extent]) -> list[int | str]:
        """The dimensions of a value, to be asked for in a Reshape."""
        return [extent if isinstance(extent, int) else self.extent(name, axis) for axis, extent in enumerate(dims)]

    def shape(self, target: Target) -> str:
        """A list of dimensions."""
        if all(isinstance(extent, int) for extent in target):
            return self.constant([n for n in target if isinstance(n, int)])
        parts = [extent if isinstance(extent, str) else self.constant([extent]) for extent in target]
        return self.node("Concat", parts, axis=0)

    def reshape(self, data: str, target: Target, name: str = "") -> str:
        return self.node("Reshape", [data, self.shape(target)], name)


def _both_ways(entry: Entry | None, op: str) -> list[tuple[str, str]]:
    """The two inputs of an operator, in either order; nothing where it is another one."""
    if entry is None or entry.proto.op_type != op:
        return []
    one, other = entry.proto.input
    return [(one, other), (other, one)]


def with_inputs(proto: onnx.NodeProto, inputs: Sequence[str]) -> onnx.NodeProto:
    found = onnx.NodeProto()
    found.CopyFrom(proto)
    del found.input[:]
    found.input.extend(inputs)
    return found


Rule = Callable[[Written, NodeAttributes], None]
RULES: dict[str, Rule] = {}
"""Of operators that take each place of the first dimension alone: they write what is computed in place of the results,
or raise CannotPad."""


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Register the rule of operators of ONNX."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register
