"""Regions: the boxes of memory that statements touch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
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


def touched(body: Iterable[Stmt], ranges: Ranges) -> dict[str, Region]:
    """What statements read or write in memory, by buffer; registers are left out.

    Args:
        ranges: of the loops around them.
    """
    found: dict[str, Region] = {}
    for region in _places(body, ranges):
        found[region.buffer.name] = region.joined(found.get(region.buffer.name))
    return found


def _places(body: Iterable[Stmt], ranges: Ranges) -> Iterator[Region]:
    for stmt in body:
        if isinstance(stmt, Prefetch):
            continue
        places = [(e.buffer, e.indices) for e in expressions(stmt) if isinstance(e, Load)]
        for buffer, indices in (*places, *(stmt.targets if isinstance(stmt, Store) else ())):
            if buffer.scope != REGISTER:
                yield Region(buffer, tuple(_range(i, ranges, n) for i, n in zip(indices, buffer.shape)))
        yield from _places(body_of(stmt), loop_ranges(stmt, ranges) if isinstance(stmt, For) else ranges)


def _range(index: Linear, ranges: Ranges, size: int) -> Range:
    """Where an index may lie, within its dimension; everywhere when data decides."""
    if index.is_opaque:
        return 0, size - 1
    low, high = index.range(ranges)
    return max(low, 0), min(high, size - 1)
