"""What is known of a value of a model with an open dimension: where that is, and what stands in its padding."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Union


@dataclass(frozen=True, slots=True)
class Sum:
    """Extents of open dimensions, each times a number, plus a number; only an element, never a dimension.

    Attributes:
        terms: symbols in order, each with a factor other than 0; not one symbol alone, once, with nothing added.
    """

    terms: tuple[tuple[str, int], ...]
    by: int


Extent = Union[int, str, Sum, None]
"""A static extent, an open dimension by its symbol, or an extent of which no more is known than that the dimension in
question has no part in it."""

ANYTHING = math.inf
"""The bound of padding of which nothing is known, not even that it is a number."""

LARGE = 1e4
"""What any float holds, f16 too."""


class CannotPad(Exception):
    """Padding would change other elements, as far as anybody knows.

    `place`: of the node in the model's table, where it is one.
    """

    def __init__(self, why: str, place: int | None = None) -> None:
        super().__init__(why)
        self.place = place


class NeedsZeros(Exception):
    """The padding of a value must be made zero, then something can be said."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class Fact:
    """
    Attributes:
        dims: of the value; None where not even its rank is known, and the open dimension has no part in it.
        bound: the largest magnitude in the padding; 0 where that is all zeros.
        zeros: axes of the open dimension in whose padding there are zeros, wherever the other axes are not padded.
        elements: what a short list of integers holds, extents of the run by their symbols; None where nobody knows.
        behind: axes of the open dimension, counted from the last one, behind whose padding there are more elements, and
            how many. Few operators may read them.
    """

    dims: tuple[Extent, ...] | None
    bound: float = ANYTHING
    zeros: frozenset[int] = frozenset()
    elements: tuple[Extent, ...] | None = None
    behind: tuple[tuple[int, int], ...] = ()

    def has(self, symbol: str) -> bool:
        """Whether the open dimension is one of its own."""
        return self.dims is not None and symbol in self.dims

    def tells(self, symbol: str) -> bool:
        """Whether the extent of the open dimension has a part in its elements."""
        return any(symbol in terms_of(extent) for extent in self.elements or ())

    @property
    def is_finite(self) -> bool:
        return self.bound <= LARGE

    def with_zeros(self) -> Fact:
        return replace(self, bound=0.0)


def terms_of(extent: Extent) -> dict[str, int]:
    """Symbols and their factors."""
    return dict(extent.terms) if isinstance(extent, Sum) else {extent: 1} if isinstance(extent, str) else {}


def number_of(extent: Extent) -> int:
    """What is added to the symbols."""
    return extent.by if isinstance(extent, Sum) else extent if isinstance(extent, int) else 0


def total(terms: Mapping[str, int], by: int) -> Extent:
    """The extent of these symbols and that number."""
    found = tuple(sorted((symbol, factor) for symbol, factor in terms.items() if factor))
    if not found:
        return by
    return found[0][0] if found == ((found[0][0], 1),) and not by else Sum(found, by)


def broadcast(shapes: Collection[Sequence[Extent]], symbol: str) -> tuple[Extent, ...]:
    """The dimensions of an elementwise result.

    Raises:
        CannotPad: the open dimension meets another extent than itself and 1.
    """
    rank = max(map(len, shapes), default=0)
    found: list[Extent] = []
    for place in range(-rank, 0):
        met = {shape[place] for shape in shapes if len(shape) >= -place} - {1}
        if symbol in met and len(met) > 1:
            raise CannotPad("the open dimension meets another extent")
        found.append(1 if not met else None if len(met) > 1 else next(iter(met)))
    return tuple(found)


def joined_behind(facts: Collection[Fact], symbol: str) -> tuple[tuple[int, int], ...]:
    """What lies behind the padding of an elementwise result.

    Raises:
        CannotPad: not the same of all operands.
    """
    met: dict[int, set[int]] = {}
    for fact in facts:
        dims, own = fact.dims or (), dict(fact.behind)
        for place in (n - len(dims) for n, extent in enumerate(dims) if extent == symbol):
            met.setdefault(place, set()).add(own.get(place, 0))
    if any(len(counts) > 1 for counts in met.values()):
        raise CannotPad("elements lie behind the padding of one and not of another")
    return tuple((place, count) for place, counts in sorted(met.items()) for count in counts if count)


def reshaped(
    dims: Sequence[Extent], target: Sequence[Extent], symbol: str, *, copies: bool = True
) -> tuple[Extent, ...]:
    """The dimensions that a Reshape gives.

    Args:
        target: what it reads; 0 copies an extent if `copies`, -1 is what remains.

    Raises:
        CannotPad: the open dimension does not stay one of its own, at its place among the elements.
    """
    found = [dims[n] if extent == 0 and copies and n < len(dims) else extent for n, extent in enumerate(target)]
    if -1 in found:
        found[found.index(-1)] = _remaining(dims, [extent for extent in found if extent != -1])
    before, after = ([n for n, extent in enumerate(shape) if extent == symbol] for shape in (dims, found))
    if len(before) != len(after):
        raise CannotPad("the open dimension becomes part of another one")
    for one, other in zip(before, after):
        if size_of(dims[:one]) != size_of(found[:other]) or size_of(dims[:one]) is None:
            raise CannotPad("the open dimension moves among the elements")
    return tuple(found)


def size_of(extents: Sequence[Extent]) -> tuple[int, tuple[str, ...]] | None:
    """The number of elements, as a product of a number and symbols."""
    if None in extents:
        return None
    names = sorted(extent for extent in extents if isinstance(extent, str))
    return math.prod(extent for extent in extents if isinstance(extent, int)), tuple(names)


def _remaining(dims: Sequence[Extent], others: Sequence[Extent]) -> Extent:
    """The extent that a Reshape finds by itself; None where that is no single symbol and no number."""
    whole, known = size_of(dims), size_of(others)
    if whole is None or known is None or known[0] == 0 or whole[0] % known[0]:
        return None
    names = list(whole[1])
    for name in known[1]:
        if name not in names:
            return None
        names.remove(name)
    number = whole[0] // known[0]
    return number if not names else names[0] if len(names) == 1 and number == 1 else None
