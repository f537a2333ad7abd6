"""Regions: the boxes of memory that statements touch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autotune.core import LINE
from autotune.lower.ir import REGISTER, Buffer, For, Load, Prefetch, Stmt, Store, body_of, expressions, loop_ranges
from autotune.schedule.state import UNROLL
from autotune.tensor.linear import Div, Linear, Mod, Range, Ranges


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a buffer: first and last element in each dimension.

    Attributes:
        counts: how many elements there are along each dimension, where loops leave gaps; empty where none has any.
        parts: so many times that, each somewhere else in the box.
    """

    buffer: Buffer
    box: tuple[Range, ...]
    counts: tuple[int, ...] = ()
    parts: int = 1

    @property
    def bytes(self) -> int:
        return self.lines(self.buffer.dtype.bytes)

    def lines(self, size: int) -> int:
        """Bytes of the lines, each of `size` bytes, that it lies on: its rows are runs of memory."""
        each = self._lines(self._spans(), size)
        return min(each * self.parts, self._lines(self._whole(), size)) if self.parts > 1 else each

    def _lines(self, spans: Sequence[int], size: int) -> int:
        run, rows = 1, 1
        whole = True  # all dimensions further in
        for span, extent in zip(reversed(spans), reversed(self.buffer.shape)):
            run, rows = (run * span, rows) if whole else (run, rows * span)
            whole &= span >= extent
        return rows * -(-run * self.buffer.dtype.bytes // size) * size

    def joined(self, other: Region | None) -> Region:
        """The box around both; gaps of one are left where the other fills no more than it has, but of those with parts,
        which lie anywhere in theirs."""
        if other is None or other == self:
            return self
        box = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(self.box, other.box))
        if self.parts > 1 or other.parts > 1 or not (self.counts or other.counts):
            return Region(self.buffer, box)
        counts = [
            max(a, b) if one == two else min(a + b, high - low + 1)
            for one, two, a, b, (low, high) in zip(self.box, other.box, self._spans(), other._spans(), box)
        ]
        return _region(self.buffer, box, counts)

    def _spans(self) -> Sequence[int]:
        return self.counts or self._whole()

    def _whole(self) -> list[int]:
        return [max(high - low + 1, 0) for low, high in self.box]


def _region(buffer: Buffer, box: tuple[Range, ...], counts: Sequence[int]) -> Region:
    gaps = any(count < high - low + 1 for count, (low, high) in zip(counts, box))
    return Region(buffer, box, tuple(counts) if gaps else ())


Place = tuple[Buffer, tuple[Linear, ...]]
"""A buffer in memory, and where in it."""


class Places(NamedTuple):
    """What a statement touches itself, each once; and variables of which indices, in it or inside, have a quotient."""

    own: list[Place]
    divided: frozenset[str]


def touched(
    body: Iterable[Stmt], ranges: Ranges, known: dict[int, Places] | None = None
) -> dict[str, Region]:  # fmt: skip
    """What statements read or write in memory, by buffer; registers are left out.

    Args:
        ranges: of the loops around them.
        known: what single statements touch, by id, for who asks again while they live.
    """
    found: dict[str, Region] = {}
    _add(body, ranges, {} if known is None else known, found)
    return found


def _add(body: Iterable[Stmt], ranges: Ranges, known: dict[int, Places], found: dict[str, Region]) -> None:
    for stmt in body:
        places = _remembered(stmt, known)
        for buffer, indices in places.own:
            box = tuple([_range(i, ranges, n) for i, n in zip(indices, buffer.shape)])
            region = _region(buffer, box, _counts(buffer, indices, box, ranges))
            found[buffer.name] = region.joined(found.get(buffer.name))
        inside = body_of(stmt)
        if isinstance(stmt, For) and stmt.mark == UNROLL and stmt.var in places.divided:
            turns = range(stmt.begin, stmt.begin + stmt.extent)
            each = [touched(inside, {**ranges, stmt.var: (turn, turn)}, known) for turn in turns]
            for name in dict.fromkeys(name for regions in each for name in regions):
                region = _parts([regions[name] for regions in each if name in regions])
                found[name] = region.joined(found.get(name))
        elif inside:
            _add(inside, loop_ranges(stmt, ranges) if isinstance(stmt, For) else ranges, known, found)


def _parts(regions: Sequence[Region]) -> Region:
    """What the turns of a loop touch that lie anywhere, as the quotients of their numbers do."""
    distinct = list(dict.fromkeys(regions))
    if len(distinct) == 1:
        return distinct[0]
    box = tuple(
        (min(low for low, _ in ends), max(high for _, high in ends)) for ends in zip(*(r.box for r in distinct))
    )
    counts = tuple(max(spans) for spans in zip(*(region._spans() for region in distinct)))
    return Region(distinct[0].buffer, box, counts, sum(region.parts for region in distinct))


def _remembered(stmt: Stmt, known: dict[int, Places]) -> Places:
    places = known.get(id(stmt))
    if places is None:
        own = _places(stmt)
        divisions = (t for _, indices in own for i in indices for t in i.terms if isinstance(t, (Div, Mod)))
        inside = [_remembered(inner, known).divided for inner in body_of(stmt)]
        divided = frozenset(name for t in divisions for name in t.arg.variables()).union(*inside)
        places = known[id(stmt)] = Places(own, divided)
    return places


def _places(stmt: Stmt) -> list[Place]:
    if isinstance(stmt, Prefetch):
        return []
    places = [(e.buffer, e.indices) for e in expressions(stmt) if isinstance(e, Load)]
    places += stmt.targets if isinstance(stmt, Store) else ()
    return list(dict.fromkeys(place for place in places if place[0].scope != REGISTER))


def _range(index: Linear, ranges: Ranges, size: int) -> Range:
    """Where an index may lie, within its dimension; everywhere when data decides."""
    if index.is_opaque:
        return 0, size - 1
    low, high = index.range(ranges)
    return max(low, 0), min(high, size - 1)


def _counts(buffer: Buffer, indices: Sequence[Linear], box: Sequence[Range], ranges: Ranges) -> list[int]:
    """Elements along each dimension without those that loops step over, of the last one whole lines of them: the rows
    of the upper half and of the lower one are two runs, not all that is between."""
    last, line = len(box) - 1, LINE // buffer.dtype.bytes
    return [
        min(_stepped(index, ranges, line if d == last else 1, high - low + 1), max(high - low + 1, 0))
        for d, (index, (low, high)) in enumerate(zip(indices, box))
    ]


def _stepped(index: Linear, ranges: Ranges, gap: int, most: int) -> int:
    """How many values an index takes, with those between two that are less than `gap` apart; `most` where all are."""
    if index.is_opaque or all(abs(step) <= gap for step in index.terms.values()):
        return most
    count = around = 1
    for step, turns in index.steps(ranges):
        reach = around + step * (turns - 1)
        dense = step - around < gap
        count = reach if dense and count == around else min(reach, count * turns)
        around = reach
    return count
