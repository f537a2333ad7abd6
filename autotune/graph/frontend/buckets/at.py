"""The node that a rule is asked about, and the table of rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.buckets.facts import ANYTHING, CannotPad, Extent, Fact, Sum
from autotune.graph.ir import Array

SHAPE_ELEMENTS = 64
"""Elements of a list that may be a shape."""


@dataclass
class At:
    """A node whose rule is asked.

    Attributes:
        names: of its inputs, empty where one is left out.
        facts: of its inputs.
        arrays: those that are constants.
        symbol: the open dimension. `least`: its smallest extent.
        of_integers: whether all inputs are known to be of integer types.
        roomy: caches that have room for padded rows, too, behind those that are used, and zeros there.
        source: a value upstream of an input, whose zeros in the padding would make that finite.
        magnitude: the largest one of a constant.
        within: whether a value, or one component of it, holds places along the open dimension that are no padding.
        masks: what the rule asks for: the padding of an input, by position, along these axes, becomes a number.
        counted: the axis of the open dimension along which a value, or one component of it, is 0, 1, 2, ...
        picked: an axis and the places along it of the elements that are the result, in this shape.
        told: inputs, by position, whose elements are numbers of the run: what the extents are without padding.
        mixes: elements depend on others along the open dimension, or on their place.
    """

    node: NodeAttributes
    names: Sequence[str]
    facts: Sequence[Fact | None]
    arrays: Sequence[Array | None]
    symbol: str
    least: int
    of_integers: bool
    roomy: Collection[str]
    source: Callable[[str], str]
    magnitude: Callable[[str], float]
    within: Callable[[str, int | None], bool]
    counted: Callable[[str, int | None], int | None]
    masks: dict[int, tuple[tuple[int, ...], float]] = field(default_factory=dict)
    picked: tuple[int, tuple[Extent, ...], tuple[int, ...]] | None = None
    told: dict[int, Fact] = field(default_factory=dict)
    mixes: bool = False

    def with_numbers(self) -> At:
        """The same node, to which extents of the open dimension are numbers like others."""
        told = {n: fact for n, fact in enumerate(self.facts) if fact is not None and fact.tells(self.symbol)}
        facts = [replace(fact, elements=None) if fact is not None and n in told else fact
                 for n, fact in enumerate(self.facts)]  # fmt: skip
        return replace(self, facts=facts, told=told, masks={}, mixes=False)

    def fact(self, position: int) -> Fact:
        found = self.facts[position] if position < len(self.facts) else None
        if found is None:
            raise CannotPad("an input is missing")
        return found

    def dims(self, position: int) -> tuple[Extent, ...]:
        found = self.fact(position).dims
        if found is None:
            raise CannotPad("an input is of unknown rank")
        return found

    def shape(self, position: int) -> tuple[Extent, ...]:
        """The dimensions that an input asks for."""
        found = self.fact(position).elements
        if found is None or any(isinstance(extent, Sum) for extent in found):
            raise CannotPad("a shape is computed")
        return found

    def array(self, position: int) -> Array | None:
        return self.arrays[position] if position < len(self.arrays) else None

    def ints(self, position: int, name: str) -> tuple[int, ...] | None:
        """Integers that are an attribute in old opsets, a constant input in new ones; None where they are not given."""
        found = self.array(position)
        if found is not None:
            return tuple(int(n) for n in found.reshape(-1))
        if position < len(self.facts) and self.facts[position] is not None:
            raise CannotPad(f"{name} is no constant")
        return self.node.attr_ints(name)

    def axis(self, value: int, rank: int) -> int:
        return value + rank if value < 0 else value

    def largest(self, position: int) -> float:
        """A bound of an input where it meets padding: of that, or, where it has none, of a constant."""
        fact = self.fact(position)
        if fact.has(self.symbol):
            return fact.bound
        return ANYTHING if self.array(position) is None else self.magnitude(self.names[position])


Rule = Callable[[At], list[Fact]]
RULES: dict[tuple[str, str], Rule] = {}
"""By domain and operator."""


def rule(*ops: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register the rule of operators of a domain."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys([(domain, op) for op in ops], function))
        return function

    return register


def rule_of(node: NodeAttributes) -> Rule | None:
    domain = node.proto.domain
    return RULES.get(("" if domain == "ai.onnx" else domain, node.op))
