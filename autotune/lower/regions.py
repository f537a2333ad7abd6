"""Regions: the boxes of memory that statements touch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.lower.ir import REGISTER, Buffer, For, Load, Prefetch, Stmt, Store, body_of, expressions, loop_ranges
from autotune.tensor.linear import Linear, Range, Ranges


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a buffer: first and last element in each dimension."""

    buffer: Buffer
    box: tuple[Range, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self._spans()) * self.buffer.dtype.bytes

    def lines(self, size: int) -> int:
        """Bytes of the lines, each of `size` bytes, that it lies on: its rows are runs of memory."""
        run, rows = 1, 1
        whole = True  # all dimensions further in
        for span, extent in zip(reversed(self._spans()), reversed(self.buffer.shape)):
            run, rows = (run * span, rows) if whole else (run, rows * span)
            whole &= span >= extent
        return rows * -(-run * self.buffer.dtype.bytes // size) * size

    def joined(self, other: Region | None) -> Region:
        """The box around both."""
        if other is None or other.box == self.box:
            return self
        sides = zip(self.box, other.box)
        return Region(self.buffer, tuple((min(a, c), max(b, d)) for (a, b), (c, d) in sides))

    def _spans(self) -> list[int]:
        return [max(high - low + 1, 0) for low, high in self.box]


Place = tuple[Buffer, tuple[Linear, ...]]
"""A buffer in memory, and where in it."""


def touched(
    body: Iterable[Stmt], ranges: Ranges, known: dict[int, list[Place]] | None = None
) -> dict[str, Region]:  # fmt: skip
    """What statements read or write in memory, by buffer; registers are left out.

    Args:
        ranges: of the loops around them.
        known: what single statements touch, by id, for who asks again while they live.
    """
    found: dict[str, Region] = {}
    _add(body, ranges, {} if known is None else known, found)
    return found


def _add(body: Iterable[Stmt], ranges: Ranges, known: dict[int, list[Place]], found: dict[str, Region]) -> None:
    for stmt in body:
        places = known.get(id(stmt))
        if places is None:
            places = known[id(stmt)] = _places(stmt)
        for buffer, indices in places:
            region = Region(buffer, tuple([_range(i, ranges, n) for i, n in zip(indices, buffer.shape)]))
            found[buffer.name] = region.joined(found.get(buffer.name))
        inside = body_of(stmt)
        if inside:
            _add(inside, loop_ranges(stmt, ranges) if isinstance(stmt, For) else ranges, known, found)


def _places(stmt: Stmt) -> list[Place]:
    """What a statement touches itself, each once."""
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
