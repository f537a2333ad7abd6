"""Which of the programs of a compiled file serve a run: the least expected time, pieces and padding included."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from autotune.errors import InputError
from autotune.runtime.open_axes import Extents, OpenAxes, Piece

SHOWN = 8
"""How many programs an error names."""


class Candidate(NamedTuple):
    """A program of a file.

    Attributes:
        extents: that it was made for.
        seconds: that a run of them should take, all weights at hand; only the proportions of seconds matter.
        weight_bytes: of the packed weights that it reads.
        own_bytes: of those that no program before it in the file reads.
        reading: seconds in which a run reads its weights, however small it is.
    """

    extents: Extents
    seconds: float
    weight_bytes: int
    own_bytes: int
    reading: float = 0.0


@dataclass(frozen=True)
class Selection:
    """
    Attributes:
        padding: by open dimension, what an element of the padding costs, of what any other does.
        candidates: the programs, in the order of the file.
    """

    axes: OpenAxes
    padding: tuple[float, ...]
    candidates: tuple[Candidate, ...]

    @cached_property
    def numbers(self) -> Mapping[Extents, int]:
        """The places of the programs in the file."""
        return {candidate.extents: n for n, candidate in enumerate(self.candidates)}

    def exactly(self, extents: Extents) -> tuple[Piece, ...]:
        """A run in the program that was made for its shape. Raises InputError where there is none."""
        if extents not in self.numbers:
            raise self._nothing(extents, " of exactly that shape (on_new_shape='error')")
        cut = self.axes.cut
        return (Piece(extents, 0, 0 if cut is None else extents[self.axes.symbols.index(cut.symbol)]),)

    def pieces(self, extents: Extents) -> tuple[Piece, ...]:
        """A run in the programs that should take the least time. Raises InputError where none serve."""
        if extents in self.numbers or 0 in extents:
            return self.exactly(extents)
        cut = self.axes.cut
        at = None if cut is None else self.axes.symbols.index(cut.symbol)
        free = {axis.symbol for axis in self.axes.free}
        wanted = [(n, s, extent) for n, (s, extent) in enumerate(zip(self.axes.symbols, extents)) if n != at]
        fits = [
            candidate for candidate in self.candidates
            if all(candidate.extents[n] >= extent if s in free else candidate.extents[n] == extent
                   for n, s, extent in wanted)
        ]  # fmt: skip
        if not fits:
            raise self._nothing(extents, "")
        if at is None:
            return (Piece(min(fits, key=lambda found: self._seconds(found, extents)).extents, 0, 0),)

        def seconds(made: Extents, length: int) -> float:
            return self._seconds(self.candidates[self.numbers[made]], (*extents[:at], length, *extents[at + 1 :]))

        return least_pieces(extents[at], at, [found.extents for found in fits], seconds)

    def _seconds(self, candidate: Candidate, extents: Extents) -> float:
        """What a program takes for a run of these extents or smaller ones."""
        whole = candidate.seconds / times_as_long(candidate.extents, extents, (1.0,) * len(extents))  # for its extents
        return candidate.reading + whole * times_as_long(candidate.extents, extents, self.padding)

    def _nothing(self, extents: Extents, how: str) -> InputError:
        known = [self.described(candidate.extents) for candidate in self.candidates[:SHOWN]]
        more = len(self.candidates) - len(known)
        return InputError(
            f"the compiled file has no program for {self.described(extents)}{how}; it was made for "
            + "; ".join(known) + (f" and {more} more" if more else "") + ": compile it for this shape, too"
        )  # fmt: skip

    def described(self, extents: Extents) -> str:
        """Extents as messages write them."""
        return ", ".join(f"{symbol} = {extent}" for symbol, extent in zip(self.axes.symbols, extents))

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; `from_json` is its inverse."""
        return {
            "axes": self.axes.to_json(),
            "padding": list(self.padding),
            "candidates": [[list(c.extents), *c[1:]] for c in self.candidates],
        }

    @staticmethod
    def from_json(data: Any) -> Selection:
        """Raises KeyError, TypeError or ValueError for what is none."""
        axes = OpenAxes.from_json(data["axes"])
        candidates = tuple(
            Candidate(tuple(map(int, extents)), float(seconds), int(weights), int(own), *map(float, reading))
            for extents, seconds, weights, own, *reading in data["candidates"]  # older files say nothing of it
        )
        found = Selection(axes, tuple(map(float, data["padding"])), candidates)
        ranks = {len(found.padding), *(len(candidate.extents) for candidate in candidates)}
        if ranks != {len(axes.symbols)} or any(min(candidate.extents) < 0 for candidate in candidates):
            raise ValueError("extents that are not those of the open dimensions")
        return found


def times_as_long(made: Extents, wanted: Extents, costs: Sequence[float]) -> float:
    """How many times as long the arithmetic of a larger program takes as of one for just what is wanted.

    Args:
        costs: by dimension, what an element of the padding costs, of what any other does. Below 1 kernels leave it out:
            what lies behind one such end is left out whatever it is along the others.
    """
    ends = [(a / b, cost) for a, b, cost in zip(made, wanted, costs) if cost < 1]
    padding = (math.prod(times for times, _ in ends) - 1) * max((cost for _, cost in ends), default=0.0)
    return (1 + padding) * math.prod(a / b for a, b, cost in zip(made, wanted, costs) if cost >= 1)


def least_pieces(
    whole: int, at: int, fits: Sequence[Extents], seconds: Callable[[Extents, int], float]
) -> tuple[Piece, ...]:
    """A run in pieces along a dimension, the least time of all ways to cut it.

    Args:
        whole: how long the run is there.
        at: the place of the dimension.
        fits: the programs, one or more, in which the run fits along all others.
        seconds: that a program takes for so many elements along it, no more than it has.
    """
    lengths: list[tuple[Extents, int]] = []
    fastest = min(fits, key=lambda made: seconds(made, made[at]) / made[at])
    while whole > 2 * max(made[at] for made in fits):  # what is left is searched
        lengths.append((fastest, fastest[at]))
        whole -= fastest[at]
    best: list[tuple[float, Extents, int]] = [(0.0, (), 0)]
    for length in range(1, whole + 1):
        found = []
        for made in fits:
            first = min(made[at], length)
            found.append((seconds(made, first) + best[length - first][0], made, first))
        best.append(min(found))
    while whole:
        _, bucket, length = best[whole]
        lengths.append((bucket, length))
        whole -= length
    starts = [sum(length for _, length in lengths[:n]) for n in range(len(lengths))]
    return tuple(Piece(bucket, start, length) for (bucket, length), start in zip(lengths, starts))
