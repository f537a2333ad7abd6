"""The sizes of programs that runs of a model should have, by what is known of its arithmetic."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from autotune.compiler.buckets import enough, padded_size, padding_cost, pieces
from autotune.errors import ModelError
from autotune.ops.workload import Workload
from autotune.runtime.open_axes import Extents, OpenAxes, Piece
from autotune.runtime.selection import times_as_long
from autotune.search_spaces.space.limit import Speed, limit, moved, products_per_cycle
from autotune.target import Target

MOST_PROGRAMS = 512

SHORT = 1e-4
"""Seconds of a run that is not worth a program of its own, where few are wanted."""

LEAST = 16
"""Extent of its padded dimensions, at least."""

GUESS = 0.1
"""What an element of the padding costs where kernels leave it out, until a program tells."""


@dataclass(frozen=True)
class Sizes:
    """
    Attributes:
        padding: what an element of the padding costs where kernels leave it out, of what any other does.
        density: arithmetic by the product of all extents; None until a program tells.
        weight_bytes: that a run reads in that program; of a table, the rows that it looks up.
        each: seconds that it takes at least, by the product of all extents.
        few: short runs are padded to the next power of two.
    """

    axes: OpenAxes
    target: Target
    padding: float = GUESS
    density: float | None = None
    weight_bytes: int = 0
    each: float = math.inf
    few: bool = False

    def for_few(self) -> Sizes:
        """The same where few programs are wanted."""
        return replace(self, few=True)

    def told(self, extents: Extents, workloads: Iterable[Workload]) -> Sizes:
        """What the kernels of a program of these extents tell; one for no elements tells nothing."""
        kernels, elements = Counter(workloads), math.prod(extents)
        if elements == 0:
            return self
        density = sum(kernel.flops * count for kernel, count in kernels.items()) / elements
        weights = sum(moved(kernel)[0] * count for kernel, count in kernels.items())
        padding = padding_cost(kernels.elements(), self.target)
        least = sum(limit(kernel, self.target).seconds * count for kernel, count in kernels.items())
        each = least / elements
        return replace(self, padding=padding, density=density, weight_bytes=weights, each=each)

    def pieces(self, extents: Mapping[str, int]) -> list[Piece]:
        """The pieces of a run, in the programs that they should have."""
        costs, cut = self.costs, self.axes.cut
        free = {axis.symbol for axis in self.axes.free}
        bucket = {s: max(LEAST, 1 << (n - 1).bit_length()) if s in free else n for s, n in extents.items()}
        if self.few and self.each * math.prod(bucket.values()) <= SHORT:
            return [Piece(self._places(bucket), 0, 0 if cut is None else extents[cut.symbol])]
        bucket = {s: padded_size(n, costs[s]) if s in free else n for s, n in extents.items()}
        if cut is None:
            return [Piece(self._places(bucket), 0, 0)]
        symbol = cut.symbol
        lengths = pieces(extents[symbol], self._most({**bucket, symbol: 1}, extents[symbol]), whole=bool(cut.end))
        starts = itertools.accumulate([0, *lengths[:-1]])
        return [
            Piece(self._places({**bucket, symbol: padded_size(length, costs[symbol])}), start, length)
            for start, length in zip(starts, lengths)
        ]

    def programs(self, ranges: Mapping[str, range], why_exact: Mapping[str, str]) -> dict[Extents, float]:
        """The programs that serve runs of these extents, and how often each runs in one of them on average, all being
        equally likely. A dimension of a single extent is just that; none is larger than the largest run.

        Args:
            why_exact: reasons why dimensions cannot be padded.

        Raises:
            ModelError: they are more than a file or a session holds.
        """
        free = {axis.symbol for axis in self.axes.free}
        cut = self.axes.cut.symbol if self.axes.cut is not None else None
        counts = {
            s: Counter(min(padded_size(n, self.costs[s]), r[-1]) if s in free and len(r) > 1 else n for n in r)
            for s, r in ranges.items()
            if s != cut or len(r) == 1
        }
        found: dict[Extents, float] = defaultdict(float)
        for chosen in itertools.product(*(counts[s].items() for s in counts)):
            self._refuse_many(len(found), ranges, why_exact)
            bucket = {s: extent for s, (extent, _) in zip(counts, chosen)}
            share = math.prod(count / len(ranges[s]) for s, (_, count) in zip(counts, chosen))
            if cut is None or cut in bucket:
                found[self._places(bucket)] += share
                continue
            at, runs = self.axes.symbols.index(cut), ranges[cut]
            for extent in runs:
                for piece in self.pieces({**bucket, cut: extent}):
                    found[self._places({**bucket, cut: min(piece.bucket[at], runs[-1])})] += share / len(runs)
        self._refuse_many(len(found) - 1, ranges, why_exact)
        return dict(found)

    def longer(self, made: Extents, wanted: Extents) -> float:
        """How many times as long the arithmetic of a larger program takes as of one for just what is wanted."""
        return times_as_long(made, wanted, tuple(self.costs[s] for s in self.axes.symbols))

    def seconds(self, made: Extents, wanted: Extents) -> float:
        """About what a run takes in a larger program, or, of equal extents, in its own: all weights are read, whatever
        the run is, and there is its arithmetic. Only their proportions matter."""
        return self._reading + self._arithmetic(wanted) * self.longer(made, wanted)

    @property
    def costs(self) -> Mapping[str, float]:
        """What padding costs along each dimension; where it tells nobody where it ends, as much as all else."""
        ends = {axis.symbol for axis in self.axes.free if axis.end}
        return {symbol: self.padding if symbol in ends else 1.0 for symbol in self.axes.symbols}

    def _most(self, one: Mapping[str, int], extent: int) -> int:
        """The largest piece, given the extents of a single element."""
        if self.density is None:
            return 1 << extent.bit_length()
        return enough(self._arithmetic(tuple(one.values())), self._reading)

    @property
    def _reading(self) -> float:
        """Seconds in which all weights are read."""
        return self.weight_bytes / Speed.of(self.target).dram

    def _arithmetic(self, extents: Extents) -> float:
        """Seconds of it, the least that it can take; of a product an element where nobody counts any."""
        clock, per_cycle = Speed.of(self.target).clock, 2 * products_per_cycle(self.target.core, "f32")
        return (self.density or 1.0) * math.prod(extents) / (clock * self.target.num_threads * per_cycle)

    def _places(self, extents: Mapping[str, int]) -> Extents:
        return tuple(extents[symbol] for symbol in self.axes.symbols)

    @staticmethod
    def _refuse_many(count: int, ranges: Mapping[str, range], why_exact: Mapping[str, str]) -> None:
        if count < MOST_PROGRAMS:
            return
        reasons = [f"{s} takes one for each extent: {why}" for s, why in why_exact.items() if len(ranges[s]) > 1]
        raise ModelError(
            f"these shapes take more than {MOST_PROGRAMS} programs; name fewer, or one of each that matters"
            + (f" ({'; '.join(reasons)})" if reasons else "")
        )
