"""Table: rows of text in columns, one line a row, at any width. Facts: names and texts, which are broken between words.

Numbers are never cut. Where the width does not suffice, columns named as spare are left out, and the long ones (an
operator, a node, a config) are cut with an ellipsis.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

GAP = 2
ROOM = 24
"""Letters that each long column gets before anything is left out for it, where its texts are as long."""
LEAST = 8
UNKNOWN = "-"
"""The text of a cell without a value."""


class Table:
    """
    Args:
        right: columns that hold numbers.
        long: columns that get the room that is left, and are cut when that is too little; the first counts most.
        ends: columns whose ends say most: they are cut at the start.
        spare: columns to leave out where there is no room, the first one first; what then fits all the same stays.
    """

    def __init__(
        self,
        headings: Sequence[str],
        right: Collection[str] = (),
        long: Sequence[str] = (),
        spare: Sequence[str] = (),
        ends: Collection[str] = (),
    ) -> None:
        unknown = {*right, *long, *spare, *ends} - set(headings)
        if unknown:
            raise ValueError(f"no column is named {', '.join(sorted(unknown))}")
        self.headings, self.right, self.long, self.spare = tuple(headings), frozenset(right), tuple(long), tuple(spare)
        self.ends = frozenset(ends)
        self.rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        """A cell for each column; line breaks become spaces."""
        if len(cells) != len(self.headings):
            raise ValueError(f"{len(cells)} cells for {len(self.headings)} columns")
        self.rows.append(tuple(" ".join(cell.split("\n")) for cell in cells))

    def lines(self, width: int | None = None) -> Iterator[str]:
        """The heading and a line per row, none wider than `width`; None is no limit. A column without a value has no
        place."""
        natural = {
            n: max(map(cell_len, cells))
            for n, cells in enumerate(zip(self.headings, *self.rows))
            if not self.rows or any(cell != UNKNOWN for cell in cells[1:])
        }
        widths = natural if width is None else self._fitting(natural, width)
        for cells in (self.headings, *self.rows):
            line = (
                (" " * GAP)
                .join(
                    _filled(cells[n], size, self.headings[n] in self.right, self.headings[n] in self.ends)
                    for n, size in widths.items()
                )
                .rstrip()
            )
            yield line if width is None or cell_len(line) <= width else _cut(line, width)

    def _fitting(self, natural: dict[int, int], width: int) -> dict[int, int]:
        """Widths by column, those that are left out missing."""
        texts = [n for n in natural if self.headings[n] not in self.right]
        wanted = {n: min(size, ROOM) if self.headings[n] in self.long else size for n, size in natural.items()}
        spare = [n for name in self.spare for n in natural if self.headings[n] == name]
        left_out: list[int] = []
        while spare and _total(wanted, left_out) > width:
            left_out.append(spare.pop(0))
        for n in reversed(left_out):  # for a wide column, narrow ones may have gone for nothing
            if _total(wanted, others := [other for other in left_out if other != n]) <= width:
                left_out = others
        kept = {n: size for n, size in natural.items() if n not in left_out}
        names = self.long or [self.headings[n] for n in sorted(texts, key=lambda n: -natural[n])[:1]]
        cut = [n for name in names for n in kept if self.headings[n] == name]
        for least in (ROOM, LEAST):  # the last ones give first, down to `least`
            for n in reversed(cut):
                kept[n] = max(min(kept[n], least), kept[n] - max(0, _total(kept) - width))
        return kept


@dataclass(frozen=True, slots=True)
class Facts:
    """Two columns without a heading: what it is called, and what it is."""

    rows: tuple[tuple[str, str], ...]

    def lines(self, width: int | None = None) -> Iterator[str]:
        """None is no limit; only a word that is longer makes a line wider than `width`."""
        room = max((cell_len(name) for name, _ in self.rows), default=0) + GAP
        for name, value in self.rows:
            first, rest = name + " " * (room - cell_len(name)), " " * room
            if width is None:
                yield f"{first}{' '.join(value.split())}".rstrip()
            else:
                yield from textwrap.wrap(
                    value, width, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                    break_on_hyphens=False,
                ) or [name]  # fmt: skip


def _total(widths: dict[int, int], but: Collection[int] = ()) -> int:
    kept = [size for n, size in widths.items() if n not in but]
    return sum(kept) + GAP * (len(kept) - 1)


def _filled(cell: str, width: int, right: bool, end: bool) -> str:
    missing = width - cell_len(cell)
    if missing < 0:
        return _cut(cell[::-1], width)[::-1] if end else _cut(cell, width)
    return " " * missing + cell if right else cell + " " * missing


def _cut(text: str, width: int) -> str:
    return set_cell_size(text, width - 1) + "…"
