"""Whether a model may run with an open dimension padded, and what that takes: each operator's rule, in order."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx

from autotune.errors import AutotuneError
from autotune.graph.frontend.buckets import attention, contributed, movement, rules  # noqa: F401  they register themselves
from autotune.graph.frontend.buckets.at import SHAPE_ELEMENTS, At, Rule, rule_of
from autotune.graph.frontend.buckets.computed import difference
from autotune.graph.frontend.buckets.facts import ANYTHING, CannotPad, Extent, Fact, NeedsZeros
from autotune.graph.frontend.buckets.types import Types, inferred_types
from autotune.graph.frontend.entry import Entry
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.source import tensor_array
from autotune.graph.ir import Array
from autotune.tensor.dtype import DType

_LINEAR = {"Add", "Sub", "Mul", "Div", "MatMul"}  # with a constant: zeros in the padding become bounded numbers
_FLOATS = {d.value for d in DType if d.is_float}
_MOVES = {"Transpose", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Dropout", "Cast"}
_SHAPES = {
    "ConstantOfShape": {0}, "Expand": {1}, "Range": {0, 1, 2}, "Reshape": {1}, "Slice": {1, 2}, "Tile": {1},
}  # fmt: skip
"""Inputs of operators, by position, in which extents are those with padding."""
PASSING = {
    "Add", "Cast", "Exp", "Identity", "LogSoftmax", "Max", "Min", "Mul", "ReduceMax", "ReduceMin", "ReduceSum", "Slice",
    "Softmax", "Sub", "Where",
}  # fmt: skip
"""Operators that may read elements behind the padding."""
_SPREADS = _MOVES - {"Dropout"} | {"Expand"}  # of the same numbers


@dataclass(frozen=True)
class Mask:
    """What an operator must find in the padding of one of its inputs.

    Attributes:
        axes: along which the padding is replaced.
        fill: by what.
        dtype, rank: of the input.
        behind: for each axis, how many elements there are behind the padding.
    """

    axes: tuple[int, ...]
    fill: float
    dtype: str
    rank: int
    behind: tuple[int, ...]


@dataclass(frozen=True)
class Told:
    """An input whose elements are extents of the run, read as numbers: they must be those without padding.

    Attributes:
        elements: in order.
        dtype, shape: of the input.
    """

    elements: tuple[Extent, ...]
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Padding:
    """How a model runs with an open dimension padded.

    Attributes:
        symbol: the dimension.
        mixes: elements along it depend on each other or on their place; otherwise it may be cut into pieces, too.
        zeroed: values whose padding is made zero for all who read them.
        masks: inputs of nodes that get a mask of their own, by place in the model's table and position.
        told: inputs of nodes that are computed from what is no padding, by the same.
        picked: nodes that become a Gather along an axis of these places, by place in the table.
        outputs: axes of the dimension in each output.
        unread: outputs whose padding is made zero, so that what leads there only need not be computed.
        ends: the padded model is told where the padding begins: that is so where there are masks, or numbers told.
    """

    symbol: str
    mixes: bool
    zeroed: Mapping[str, Mask]
    masks: Mapping[tuple[int, int], Mask]
    told: Mapping[tuple[int, int], Told]
    picked: Mapping[int, tuple[int, Told]]
    outputs: Mapping[str, tuple[int, ...]]
    unread: Mapping[str, Mask]
    ends: bool


def padding_of(model: OnnxModel, symbol: str, least: int = 1, roomy: Collection[str] = ()) -> Padding:
    """What it takes to pad an open dimension of the inputs.

    Args:
        least: the smallest extent that it has in any run.
        roomy: caches to which rows along it are written: these have room for padded rows, too, and zeros there.

    Raises:
        CannotPad: padding may change other elements; the message names the node.
    """
    return Analysis(model, symbol, least, roomy).result()


def facts_of(model: OnnxModel) -> Mapping[str, Fact]:
    """What is known of a model's values, as far as it follows from the dimensions of its inputs.

    Raises:
        CannotPad: an input is no tensor of known rank, or ONNX's inference refuses the model.
    """
    analysis = Analysis(model, "")  # a symbol that no dimension has
    analysis.result()
    return analysis.facts


def dimensions_of(model: OnnxModel) -> Mapping[str, tuple[Extent, ...] | None]:
    """Dimensions of a model's values. Raises CannotPad: as `facts_of`."""
    return {name: fact.dims for name, fact in facts_of(model).items()}


def elements_of(model: OnnxModel, names: Collection[str]) -> Mapping[str, tuple[Extent, ...] | None]:
    """What lists of integers hold, extents of the inputs by their symbols; None where that is not known.

    Raises:
        CannotPad: as `facts_of`.
    """
    facts = facts_of(model)
    return {name: facts[name].elements for name in names}


def of_constant(array: Array) -> Fact:
    """What is known of a constant."""
    short = array.ndim <= 1 and array.size <= SHAPE_ELEMENTS and array.dtype.kind in "iu"
    return Fact(array.shape, elements=tuple(int(n) for n in array.reshape(-1)) if short else None)


def constant_of(model: OnnxModel, entry: Entry) -> Array | None:
    """The tensor that a node holds; None where it is no such constant."""
    if entry.proto.op_type != "Constant" or not entry.writes:
        return None
    found = next((a.t for a in entry.proto.attribute if a.name == "value"), None)
    return None if found is None else tensor_array(found, model.folder, "a constant")


class Analysis:
    """The facts of a model's values, node by node, with an open dimension that may be padded.

    Args:
        types: of the values, where they are known already.
    """

    def __init__(
        self, model: OnnxModel, symbol: str, least: int = 1, roomy: Collection[str] = (), types: Types | None = None
    ) -> None:
        self.model, self.symbol, self.least, self.roomy = model, symbol, least, frozenset(roomy)
        self.arrays: dict[str, Array] = dict(model.initializers)
        for entry in model.nodes:
            if (array := constant_of(model, entry)) is not None:
                self.arrays[entry.writes[0]] = array
        self.types = inferred_types(model) if types is None else types
        self.facts: dict[str, Fact] = {}
        self._magnitudes: dict[str, float] = {}
        self.makers = {name: n for n, entry in enumerate(model.nodes) for name in entry.writes}

    def result(self) -> Padding:
        """What padding takes. Raises CannotPad."""
        facts = self.begin()
        zeroed = self.zeroed
        masks: dict[tuple[int, int], Mask] = {}
        told: dict[tuple[int, int], Told] = {}
        picked: dict[int, tuple[int, Told]] = {}
        mixing: set[int] = set()
        index, nodes = 0, self.model.nodes
        while index < len(nodes):
            entry = nodes[index]
            if all(name in self.arrays for name in entry.writes):
                index += 1
                continue
            at = self.at(index)
            try:
                at, found = self._found(at, entry.reads)
            except NeedsZeros as error:
                name = error.name
                if name in zeroed or name not in self.makers:
                    raise CannotPad(f"'{name}' may not be finite where it is padded") from None
                zeroed[name] = self._mask(name, facts[name], None, 0.0)
                facts[name] = facts[name].with_zeros()
                index = self.makers[name] + 1  # what is known before that stays as it is
                masks = {place: mask for place, mask in masks.items() if place[0] < index}
                told = {place: fact for place, fact in told.items() if place[0] < index}
                picked = {n: chosen for n, chosen in picked.items() if n < index}
                mixing = {n for n in mixing if n < index}
                continue
            except (CannotPad, AutotuneError) as error:
                raise CannotPad(f"{at.node.label}: {error}", index) from None
            for name, fact in zip(entry.proto.output, found):
                if name:
                    fact = self.completed(name, fact)
                    if (fact.dims or ()).count(self.symbol) > 1:
                        mixing.add(index)
                    facts[name] = fact.with_zeros() if name in zeroed else fact
            for position, (axes, fill) in at.masks.items():
                masks[index, position] = self._mask(at.names[position], at.fact(position), axes, fill)
            told.update({(index, n): self._told(at.names[n], fact) for n, fact in at.told.items()})
            if at.picked is not None:
                axis, places, shape = at.picked
                picked[index] = axis, Told(places, "i64", shape)
            if at.mixes or at.told:
                mixing.add(index)
            index += 1
        outputs: dict[str, tuple[int, ...]] = {}
        for name in self.model.outputs:
            fact = facts[name]
            if fact.behind:
                raise CannotPad(f"elements of output '{name}' lie behind the padding")
            if fact.tells(self.symbol):
                raise CannotPad(f"output '{name}' is an extent of the open dimension")
            outputs[name] = tuple(n for n, extent in enumerate(fact.dims or ()) if extent == self.symbol)
        unread = {
            name: self._mask(name, facts[name], axes, 0.0)
            for name, axes in outputs.items()
            if axes
            and name in self.makers
            and name not in zeroed
            and facts[name].bound != 0.0
            and self.types.get(name, (None,))[0] in _FLOATS
        }
        ends = bool(zeroed or masks or told or picked)
        return Padding(self.symbol, bool(mixing), dict(zeroed), masks, told, picked, outputs, unread, ends)

    def begin(self) -> dict[str, Fact]:
        """What is known before the first node. Raises CannotPad."""
        self.facts, self.zeroed = {}, dict[str, Mask]()
        for name, array in self.arrays.items():
            self.facts[name] = of_constant(array)
        for declared in self.model.inputs:
            if not declared.is_tensor or declared.dims is None:
                raise CannotPad(f"input '{declared.name}' is of unknown rank, or no tensor")
            self.facts[declared.name] = Fact(declared.dims, bound=0.0)
        return self.facts

    def at(self, index: int) -> At:
        """A node, to ask its rule."""
        names = list(self.model.nodes[index].proto.input)
        return At(
            self.model.attributes(index),
            names,
            [self.facts.get(name) if name else None for name in names],
            [self.arrays.get(name) for name in names],
            self.symbol,
            self.least,
            all(self._is_integer(name) for name in names if name),
            self.roomy,
            self._source,
            self._largest,
            self._within,
            self._counted,
        )

    def _largest(self, name: str) -> float:
        """The largest magnitude of a constant."""
        if name not in self._magnitudes:
            array = self.arrays[name]
            real = array.dtype.kind in "fiub" and array.size
            found = float(max(-float(array.min()), float(array.max()))) if real else ANYTHING
            self._magnitudes[name] = found if math.isfinite(found) else ANYTHING
        return self._magnitudes[name]

    def _is_integer(self, name: str) -> bool:
        if name in self.arrays:
            return self.arrays[name].dtype.kind in "iu"
        dtype = self.types.get(name, (None,))[0]
        return dtype is not None and DType(dtype).numpy.kind in "iu"

    def _within(self, name: str, component: int | None = None) -> bool:
        """Whether all elements are places along the open dimension that are no padding, wherever they are none.

        Args:
            component: along the last dimension, where only this one is asked about.
        """
        part = self._component(name, component)
        if part is None:
            return False
        return self._counted(part) is not None or self._is_zero(part) or self._is_last(part)

    def _is_last(self, name: str) -> bool:
        """Whether a value counts the last places of the open dimension, as many as another one has elements."""
        node = self.model.nodes[self.makers[name]].proto if name in self.makers else onnx.NodeProto()
        if node.op_type != "Add":
            return False
        for counted, start in (node.input, reversed(node.input)):
            dims, begin = self.facts[counted].dims or (), self.facts[start].elements or ()
            ranged = counted in self.makers and self.model.nodes[self.makers[counted]].proto.op_type == "Range"
            from_zero = ranged and self._is_zero(self.model.nodes[self.makers[counted]].proto.input[0])
            if from_zero and len(dims) == len(begin) == 1 and begin[0] == difference(self.symbol, dims[0]):
                return True
        return False

    def _counted(self, name: str, component: int | None = None) -> int | None:
        """The axis of the open dimension along which the elements are 0, 1, 2, ..., alike along others; None where
        there is none. As `_within`."""
        part = self._component(name, component)
        if part is None or part not in self.makers:
            return None
        index = self.makers[part]
        node, dims = self.model.nodes[index].proto, self.facts[part].dims or ()
        if node.op_type == "Range":
            return 0 if dims == (self.symbol,) else None
        if node.op_type == "Slice":
            return self._counted(node.input[0]) if dims == (self.symbol,) else None
        if node.op_type == "Add":
            one, other = node.input
            source = one if self._is_zero(other) else other if self._is_zero(one) else None
        else:
            source = node.input[0] if node.op_type in _SPREADS else None
        axis = None if source is None else self._counted(source)
        if source is None or axis is None or dims.count(self.symbol) == 1:
            return None if axis is None else dims.index(self.symbol)
        before = self.facts[source].dims or ()
        if node.op_type in ("Add", "Expand"):
            return axis + len(dims) - len(before)
        if node.op_type == "Transpose":
            return (self.model.attributes(index).attr_ints("perm") or tuple(reversed(range(len(dims))))).index(axis)
        # What else moves elements keeps the order of open dimensions.
        places = [n for n, extent in enumerate(dims) if extent == self.symbol]
        return places[[n for n, extent in enumerate(before) if extent == self.symbol].index(axis)]

    def _component(self, name: str, component: int | None) -> str | None:
        """The value that is one component of another, along the last dimension; None where that is not to be seen."""
        dims = self.facts[name].dims or (None,)
        if component is None or (component == 0 and dims[-1] == 1):
            return name
        if name not in self.makers or self.model.nodes[self.makers[name]].proto.op_type != "Concat":
            return None
        node = self.model.nodes[self.makers[name]].proto
        last = self.model.attributes(self.makers[name]).attr_int("axis", 0) in (-1, len(dims) - 1)
        ones = all((self.facts[part].dims or (None,))[-1] == 1 for part in node.input)
        return node.input[component] if last and ones and component < len(node.input) else None

    def _is_zero(self, name: str) -> bool:
        if name in self.arrays:
            return not np.any(self.arrays[name])
        elements = self.facts[name].elements
        if elements is not None or name not in self.makers:
            return elements is not None and set(elements) == {0}
        node = self.model.nodes[self.makers[name]].proto
        if node.op_type == "Mul":
            return any(map(self._is_zero, node.input))
        return node.op_type in _SPREADS and self._is_zero(node.input[0])

    def _found(self, at: At, reads: tuple[str, ...]) -> tuple[At, list[Fact]]:
        """The facts of the results; an operator without a rule may not read the open dimension.

        A rule that cannot do with the extents by their symbols is asked again with them as numbers of the run.
        """
        reading = [self.facts[name] for name in reads if name in self.facts]
        if at.node.op not in PASSING and any(fact.behind for fact in reading):
            raise CannotPad("elements lie behind the padding")
        touched = any(fact.has(self.symbol) or fact.tells(self.symbol) for fact in reading)
        known = rule_of(at.node)
        if known is not None:
            try:
                found = asked(known, at)
                if _reads_numbers(at) and any(fact.elements is None for fact in found):
                    raise CannotPad("it reads the extent of the open dimension as a number")
                return at, found
            except CannotPad as error:
                if any(fact.tells(self.symbol) for fact in reading):
                    told = at.with_numbers()
                    return told, asked(known, told)
                if touched:
                    raise CannotPad(str(error)) from None
        elif touched:
            raise CannotPad("nobody knows what this operator does with an open dimension")
        return at, [Fact(self.static(name)) for name in at.node.proto.output]

    def static(self, name: str) -> tuple[Extent, ...] | None:
        """The dimensions of a value in which the open dimension has no part."""
        found = self.types.get(name)
        if found is None or found[1] is None:
            return None
        return tuple(extent if isinstance(extent, int) else None for extent in found[1])

    def completed(self, name: str, fact: Fact) -> Fact:
        """With static extents that the rule left to shape inference."""
        static = self.static(name)
        if fact.dims is None or static is None or len(static) != len(fact.dims):
            return fact
        return replace(fact, dims=tuple(b if a is None else a for a, b in zip(fact.dims, static)))

    def _mask(self, name: str, fact: Fact, axes: tuple[int, ...] | None, fill: float) -> Mask:
        dtype = self.types.get(name, (None, None))[0]
        if dtype is None or fact.dims is None or (math.isinf(fill) and not DType(dtype).is_float):
            raise CannotPad(f"'{name}' is no tensor of floats")
        chosen = tuple(n for n, extent in enumerate(fact.dims) if extent == self.symbol) if axes is None else axes
        behind = dict(fact.behind)
        return Mask(chosen, fill, dtype, len(fact.dims), tuple(behind.get(n - len(fact.dims), 0) for n in chosen))

    def _told(self, name: str, fact: Fact) -> Told:
        dtype, dims = self.types.get(name, (None, None))[0], fact.dims or ()
        elements = fact.elements or ()
        if dtype is None or not all(isinstance(extent, int) for extent in dims):
            raise CannotPad(f"'{name}' is of an unknown type")
        if None in elements:
            raise CannotPad(f"'{name}' holds what nobody knows")
        return Told(elements, dtype, tuple(int(extent) for extent in dims if isinstance(extent, int)))

    def _source(self, name: str) -> str:
        """Upstream of a value, before the products with constant matrices that it comes from, where zeros bound it
        here: so those that read one value get one mask together."""
        at = best = name
        while at in self.makers and at not in self.zeroed:
            node = self.model.nodes[self.makers[at]].proto
            moving = [found for found in node.input if found and found not in self.arrays]
            plain = node.op_type in _MOVES and self.facts[node.input[0]].has(self.symbol)
            linear = node.op_type in _LINEAR and len(moving) == 1 and (
                node.op_type not in ("Div", "MatMul") or moving[0] == node.input[0]
            )  # fmt: skip
            above = node.input[0] if plain else moving[0] if linear else None
            if above is None or above not in self.facts or not self.facts[above].has(self.symbol):
                break
            at = above
            if node.op_type == "MatMul":
                best = at
        return name if best in self.zeroed else best


def _reads_numbers(at: At) -> bool:
    """Whether an input that nobody takes for a shape holds the extent of the open dimension: what becomes of it, if
    that does not hold the extent itself, would be made from the one with padding."""
    shapes = _SHAPES.get(at.node.op, set[int]())
    return any(
        fact is not None and fact.tells(at.symbol) and n not in shapes and n not in at.told
        for n, fact in enumerate(at.facts)
    )


def asked(rule: Rule, at: At) -> list[Fact]:
    """What a rule says of all results."""
    try:
        found = rule(at)
    except (IndexError, ValueError) as error:  # attributes that do not fit
        raise CannotPad(str(error)) from None
    if len(found) < len(at.node.proto.output):
        raise CannotPad("nobody knows what some of its results are")
    return found
