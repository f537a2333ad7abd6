"""Gathers whose elements lie in a few rows of memory: these are loaded whole and shuffled in registers.

A vector whose lanes lie in rows of memory takes one element of each row; the next turn of an unrolled loop takes the
elements after these. Sixteen bytes of each row together hold a vector for several turns: the rows' pieces are put
together to vectors, and interleaved log2(piece) times (as a square is transposed by perfect shuffles).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from autotune.codegen.arithmetic import Arithmetic
from autotune.codegen.index import LANE, Indexer, Offset, PerLane
from autotune.codegen.unrolled import mentions
from autotune.codegen.value import Value, constant, mask_bits, mask_constant, stored_type
from autotune.codegen.writer import Writer
from autotune.lower.ir import REGISTER, Buffer, Condition
from autotune.tensor.linear import Div, Linear, Mod

PIECE = 16  # bytes of a row that a block takes: what shuffles inside of 128-bit lanes can reach
ALIAS = 1024  # bytes between rows that fall into few sets of the first cache, too few for the rows of a tile


class Turns(NamedTuple):
    """An unrolled loop whose turns all do the same at other places; `depth` is the number of scopes around it."""

    variable: str
    first: int
    extent: int
    depth: int


class Access(Protocol):
    """Where memory is accessed: the vector loop and the guard around, and what writes code there (see `Memory`)."""

    w: Writer
    a: Arithmetic
    x: Indexer
    lane_var: str
    lanes: int
    mask: Value | None
    unrolled: list[Turns]


def transposed(m: Access, buffer: Buffer, indices: tuple[Linear, ...], when: Sequence[Condition]) -> Value | None:
    """The lanes' elements, made for several turns of an unrolled loop at once.

    None where no unrolled loop walks along the rows, or rows or turns do not fill pieces.
    """
    width = PIECE // buffer.dtype.bytes
    active = (True,) * m.lanes if m.mask is None else mask_bits(m.mask)
    if buffer.scope == REGISTER or active is None or m.lanes % width or m.lanes & (m.lanes - 1):
        return None
    flat = m.x.flat(buffer, indices)
    if flat.is_opaque:
        return None
    for turns in reversed(m.unrolled):
        turn = m.x.bound(turns.variable)
        outside = turns.depth != len(m.w.scopes) or mentions(when, turns.variable)
        if turns.extent < width or not isinstance(turn, int) or outside:
            continue
        places = _rows(m, flat, turns)
        m.x.bind(turns.variable, turn)
        if places is not None:
            # The last block starts early enough to be whole.
            start = min((turn - turns.first) // width * width, turns.extent - width)
            whole = _aliased(buffer, places) and turns.extent == m.lanes
            rows = _Rows(m, buffer, places, active, turns.extent if whole else width)
            return rows.columns(start, width)[turn - turns.first - start]
    return None


def interleaved(
    m: Access, buffer: Buffer, indices: tuple[Linear, ...], on: Sequence[bool] | None = None,
    guard: Value | None = None, fallback: Value | None = None,
) -> Value | None:  # fmt: skip
    """Lanes that take turns among 2, 4 or 8 rows: each row's elements in one load. None where they do not.

    Args:
        on: the lanes that read anything, None for all; the others are `fallback`, a constant.
        guard: a condition for all lanes.
    """
    flat = m.x.flat(buffer, indices)
    around = (True,) * m.lanes if m.mask is None else mask_bits(m.mask)
    if buffer.scope == REGISTER or flat.is_opaque or around is None:
        return None
    active = around if on is None else tuple(a and b for a, b in zip(around, on, strict=True))
    places = _lanes(m, flat)
    for count in (2, 4, 8):
        size = m.lanes // count
        if m.lanes % count or size < 2:
            return None
        if all(places[n] == _moved(places[n % count], n // count) for n in range(m.lanes)):
            rows = _Rows(m, buffer, places, active, size)
            pieces = [rows.part(n, active[n::count], guard, fallback) for n in range(count)]
            order = [n % count * size + n // count for n in range(m.lanes)]
            text = _shuffled(m, stored_type(buffer.dtype, m.lanes), rows.joined(pieces, size), "poison", order)
            return m.a.from_storage(text, buffer.dtype, m.lanes)
    return None


def _rows(m: Access, flat: Linear, turns: Turns) -> list[Offset] | None:
    """Where the row of each lane starts; None unless all rows are contiguous along the loop."""
    m.x.bind(turns.variable, turns.first)
    places = _lanes(m, flat)
    if places is None:
        return None
    if not any(isinstance(t, (Div, Mod)) and turns.variable in t.arg.variables() for t in flat.terms):
        return places if flat.terms.get(turns.variable) == 1 else None
    for n in range(1, turns.extent):
        m.x.bind(turns.variable, turns.first + n)
        if _lanes(m, flat) != [_moved(p, n) for p in places]:
            return None
    return places


def _lanes(m: Access, flat: Linear) -> list[Offset]:
    """The place of each lane."""
    try:
        offset = m.x.offset(flat)
        return [Offset(offset.const + offset.lane * n, offset.terms, 0) for n in range(m.lanes)]
    except PerLane:
        pass
    found = []
    for n in range(m.lanes):
        m.x.bind(m.lane_var, n)
        found.append(m.x.offset(flat))
    m.x.bind(m.lane_var, LANE)
    return found


def _moved(place: Offset, distance: int) -> Offset:
    return Offset(place.const + distance, place.terms, 0)


def _aliased(buffer: Buffer, places: Sequence[Offset]) -> bool:
    """Whether a row that is left comes back from a farther cache: then it is better to load it whole, once."""
    return len({p.terms for p in places}) == 1 and all(
        (b.const - a.const) * buffer.dtype.bytes % ALIAS == 0 for a, b in itertools.pairwise(places)
    )


class _Rows(NamedTuple):
    """One row of memory per lane, of which `size` elements are loaded at once: as many as lanes, or pieces."""

    m: Access
    buffer: Buffer
    places: Sequence[Offset]
    active: Sequence[bool]
    size: int

    def columns(self, start: int, width: int) -> list[Value]:
        """Vectors of the rows' elements start, start + 1, ... start + width - 1; made once for all of them."""
        m, dtype = self.m, self.buffer.dtype
        kept = self._kept().get(("columns", tuple(self.places), tuple(self.active), start))
        if isinstance(kept, list):
            return kept
        # Rows g, g + width, ...: one in each 128-bit lane. Then neighbours are interleaved, again and again.
        if self.size == m.lanes > width:
            groups = [self._whole(g, width)[start // width] for g in range(width)]
        else:
            groups = [
                self.joined([self.piece(n, start, width) for n in range(g, m.lanes, width)], width)
                for g in range(width)
            ]
        for _ in range(width.bit_length() - 1):
            pairs = list(zip(groups[: width // 2], groups[width // 2 :], strict=True))
            groups = [
                _shuffled(m, stored_type(dtype, m.lanes), a, b, _interleaved(m.lanes, width, high))
                for a, b in pairs
                for high in (False, True)
            ]
        found = [m.a.from_storage(text, dtype, m.lanes) for text in groups]
        self._kept()["columns", tuple(self.places), tuple(self.active), start] = found
        return found

    def _kept(self) -> dict[object, object]:
        return self.m.w.scopes[-1].loads.setdefault(self.buffer.name, {})

    def piece(self, lane: int, start: int, width: int) -> str:
        """`width` elements of a lane's row, loaded once; anything for a lane that is switched off."""
        if not self.active[lane]:
            return "poison"
        key = ("row", _moved(self.places[lane], start), width)
        row = self._kept().get(key)
        if not isinstance(row, str):
            pointer = self.m.x.pointer(self.buffer, key[1], stored_type(self.buffer.dtype))
            kind = stored_type(self.buffer.dtype, width)
            row = self.m.w.value(f"load {kind}, ptr {pointer}, align {self.buffer.dtype.bytes}")
            self._kept()[key] = row
        return row

    def part(self, lane: int, on: Sequence[bool], guard: Value | None, fallback: Value | None) -> str:
        """The piece of a lane's row, `size` elements, of which some exist, and all only where the guard holds."""
        if all(on) and guard is None:
            return self.piece(lane, 0, self.size)
        m, dtype = self.m, self.buffer.dtype
        other = m.a.to_storage(fallback or constant(0, dtype), dtype, self.size)
        if not any(on):
            return other.text
        mask = mask_constant(on) if guard is None else guard
        if guard is not None and not all(on):
            mask = m.a.binary("and", mask_constant(on), guard)
        pointer = m.x.pointer(self.buffer, self.places[lane], stored_type(dtype))
        return m.w.masked_load(dtype, self.size, pointer, dtype.bytes, m.a.operand(mask, self.size), other.text)

    def _whole(self, first: int, width: int) -> list[str]:
        """From every `width`-th row, whole: vectors of their first pieces, of their second pieces, ...

        Every other piece is taken, never neighbours: LLVM would load these on their own, each from a line that has
        left the cache since the last one.
        """
        kept = self._kept().get(("whole", tuple(self.places), tuple(self.active), first))
        if isinstance(kept, list):
            return kept
        m = self.m
        kind, count = stored_type(self.buffer.dtype, m.lanes), m.lanes // width

        def picked(a: str, b: str, odd: int) -> str:
            pieces = [p for p in range(2 * count) if p % 2 == odd]
            return _shuffled(m, kind, a, b, [p * width + n for p in pieces for n in range(width)])

        def sorted_(rows: list[str]) -> list[str]:
            if len(rows) == 1:
                return rows
            pairs = list(zip(rows[::2], rows[1::2], strict=True))
            even, odd = (sorted_([picked(a, b, which) for a, b in pairs]) for which in (0, 1))
            return [v for both in zip(even, odd, strict=True) for v in both]

        found = sorted_([self.piece(n, 0, m.lanes) for n in range(first, m.lanes, width)])
        self._kept()["whole", tuple(self.places), tuple(self.active), first] = found
        return found

    def joined(self, pieces: list[str], width: int) -> str:
        """One vector of the pieces, one behind the other."""
        while len(pieces) > 1:
            kind = stored_type(self.buffer.dtype, width)
            pieces = [
                _shuffled(self.m, kind, a, b, range(2 * width)) for a, b in zip(pieces[::2], pieces[1::2], strict=True)
            ]
            width *= 2
        return pieces[0]


def _shuffled(m: Access, kind: str, a: str, b: str, order: Sequence[int]) -> str:
    picked = ", ".join(f"i32 {n}" for n in order)
    return m.w.value(f"shufflevector {kind} {a}, {kind} {b}, <{len(order)} x i32> <{picked}>")


def _interleaved(lanes: int, width: int, high: bool) -> list[int]:
    """In each 128-bit lane, the lower or higher halves of two vectors, element by element."""
    half = width // 2
    places = [base + n + (half if high else 0) for base in range(0, lanes, width) for n in range(half)]
    return [place for n in places for place in (n, lanes + n)]
