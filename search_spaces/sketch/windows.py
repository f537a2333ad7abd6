"""Windows: dimensions in which neighbours of a tile read what other terms of them read, too, or beyond the end."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.search_spaces.sketch.batch import Batch
from autotune.search_spaces.sketch.contraction import Contraction
from autotune.search_spaces.sketch.factor import Factor
from autotune.search_spaces.sketch.rules import ALL

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Window:
    """A dimension along which one spatial axis and one axis of the sum move.

    Attributes:
        factor: number of what is read.
        axis, term: numbers of the spatial axis and of the axis of the sum.
        step, apart: elements that a turn of either moves.
        first: where the first term of the first element lies; negative in padding.
        size: of the dimension.
    """

    factor: int
    axis: int
    term: int
    step: int
    apart: int
    first: int
    size: int

    def at_ends(self, c: Contraction, sizes: Array) -> tuple[Array, Array]:
        """(tiles that read something before the first element, tiles that read behind the last).

        Args:
            sizes: of tiles along the spatial axis.
        """
        extent, reach = c.spatial[self.axis].extent, self.apart * (c.reduce[self.term].extent - 1)
        tiles = np.ceil(extent / sizes)
        whole = (self.size - 1 - self.first - reach) // self.step + 1  # elements whose windows end inside
        low = np.ceil(max(-self.first, 0) / self.step / sizes)
        return low, tiles - np.minimum(np.floor(min(max(whole, 0), extent) / sizes), tiles)


def windows(c: Contraction) -> list[Window]:
    """The windows of what a contraction reads."""
    spatial, reduce = ({a.name: n for n, a in enumerate(axes)} for axes in (c.spatial, c.reduce))
    found = []
    for k, f in enumerate(c.reads):
        for d, parts in enumerate(f.steps):
            along = [(spatial[name], step) for name, step in parts if name in spatial]
            terms = [(reduce[name], step) for name, step in parts if name in reduce]
            if len(along) == len(terms) == 1:
                (axis, step), (term, apart) = *along, *terms
                found.append(Window(k, axis, term, step, apart, f.starts[d], f.shape[d]))
    return found


class Windows:
    """What tilings make of the windows of a contraction."""

    def __init__(self, c: Contraction, b: Batch) -> None:
        self.c, self.b, self.known = c, b, windows(c)
        self.rows = np.arange(len(b.vector))
        self.written = self._written_out()

    def shared(self) -> tuple[list[Array], Array]:
        """What neighbours of a tile read, and other terms in its code read again: it need be loaded but once.

        (per factor, the share of its loads that are left; registers that hold what is read again)
        """
        c, b = self.c, self.b
        left, held = [np.ones(len(self.rows)) for _ in c.reads], np.zeros(len(self.rows))
        for w in self.known:
            moves = np.array([a.name in c.reads[w.factor].axes() for a in c.spatial])
            others = np.where(moves[None, :], b.tile, 1).prod(1)
            shapes = np.stack([b.tile[:, w.axis], self.written[:, w.term]], 1).astype(int)
            shapes[b.vector == w.axis] = 1
            kinds, places = np.unique(shapes, axis=0, return_inverse=True)
            counts = np.array([overlap(m, t, w.step, w.apart) for m, t in kinds.tolist()])
            read, kept = counts.T[:, places.reshape(-1)]
            left[w.factor] *= read / shapes.prod(1)
            # Sliding, sums keep a window and its weights; term by term, all that the tile reads again.
            sliding = 2.0 * (shapes[:, 1] - 1) * b.tile[self.rows, b.vector]
            last = b.terms[:, -1] == self._loop(w.term)
            held += np.where(b.slide & last, sliding, kept * others / shapes[:, 0])
        return left, held

    def tests(self) -> Array:
        """Conditions that are tested in a step of a tile, where no zeros lie around what is read."""
        c, b, total = self.c, self.b, np.zeros(len(self.rows))
        if not c.edges:
            return total
        extents = np.array([float(x.extent) for x in c.terms()])[b.terms]
        inside = np.cumprod(extents[:, ::-1], axis=1)[:, ::-1] / extents  # steps of the loops within each
        tile = np.where(b.along(), 1, b.tile)
        for w in self.known:
            if w.axis not in c.edges:
                continue
            place = (b.terms == self._loop(w.term)).argmax(1)
            size = b.elements()[:, w.axis].astype(np.float64)
            count = np.ceil(c.spatial[w.axis].extent / size)
            low, high = w.at_ends(c, size)
            # Tiles of one element are not told apart. Of others the compiler knows one at an end, and all its terms.
            alone = (size == 1) & (count > 1)
            known = ~alone & (self.written[:, w.term] == c.reduce[w.term].extent) & (np.maximum(low, high) <= 1)
            share = np.where(alone, 1.0, np.where(known, 0.0, np.minimum((low + high) / count, 1.0)))
            each = np.where(alone, 1.0 / inside[self.rows, place], tile[:, : w.axis + 1].prod(1))
            last = place == b.terms.shape[1] - 1
            total += share * np.where(b.slide & last, tile.prod(1), each)
        return total

    def masked(self) -> Array:
        """Share of the vectors of a row that are not whole: at the end of their axis, or where padding begins."""
        c, b, found = self.c, self.b, np.zeros(len(self.rows))
        extents = np.array([a.extent for a in c.spatial], np.float64)[b.vector]
        count = np.ceil(extents / b.lanes)
        for w in self.known:
            if w.axis in c.edges:
                low, high = w.at_ends(c, b.lanes.astype(np.float64))
                found = np.where(b.vector == w.axis, np.maximum(found, low + high), found)
        return np.asarray(np.minimum(np.maximum(found, (extents % b.lanes > 0) * 1.0) / count, 1.0))

    def kept(self) -> Array:
        """Share of the terms that is left when those in padding are left out, for all of a tile or none of it."""
        c, b, kept = self.c, self.b, np.ones(len(self.rows))
        skipping = b.skip | bool(c.edges)
        for f in c.factors:
            for d in f.guarded:
                axes = [n for n, a in enumerate(c.spatial) if a.name in dict(f.steps[d])]
                if len(axes) <= 1 and skipping.any():
                    sizes = b.elements()[:, axes[0]] if axes else np.ones(len(b.vector), np.int64)
                    shares = {n: inside(c, f, d, axes, n) for n in np.unique(sizes).tolist()}
                    folded = [n for n, x in enumerate(c.foldings, 1) if c.reduce[x.axis].name in dict(f.steps[d])]
                    left = np.array([shares[n] for n in sizes.tolist()])
                    kept *= np.where(skipping & ~np.isin(b.dot, folded), left, 1.0)
        return kept

    def _loop(self, axis: int) -> int:
        """Number of the loop over what is in a block of an axis of the sum, or over all of it."""
        return max(n for n, x in enumerate(self.c.terms()) if x.axis == axis)

    def _written_out(self) -> Array:
        """(rows, axes of the sum) turns of the loops over each that are in the code of a tile."""
        found = np.ones((len(self.rows), len(self.c.reduce)))
        for n, x in enumerate(self.c.terms()):
            last = np.where(self.b.terms[:, -1] == n, np.minimum(self.b.turns(self.c), x.extent), 1)
            found[:, x.axis] *= np.where(self.b.unroll == ALL, x.extent, last)
        return found


def inside(c: Contraction, f: Factor, d: int, axes: Sequence[int], size: int) -> float:
    """Share of (tile, term) pairs of which some element lies inside of a guarded dimension of a factor.

    Args:
        d: the dimension. `axes`: the spatial axis that moves in it, if there is one. `size`: of a tile along that axis.
    """
    steps, places = dict(f.steps[d]), np.zeros(1, np.int64)
    for a in (c.spatial[n] for n in axes):
        places = np.arange(-(-a.extent // size) * size).clip(max=a.extent - 1) * steps[a.name]
    terms = np.zeros(1, np.int64)
    for a in c.reduce:
        if a.name in steps:
            terms = (terms[:, None] + np.arange(a.extent) * steps[a.name]).ravel()
    at = places[:, None] + terms + f.starts[d]
    tiles = ((at >= 0) & (at < f.shape[d])).reshape(-1, size, len(terms))
    return float(tiles.any(axis=1).mean())


@functools.lru_cache(maxsize=4096)
def overlap(sums: int, terms: int, step: int, apart: int) -> tuple[int, int]:
    """(elements that neighbouring sums read in all, those of them that wait for another term, at most).

    Args:
        sums: that neighbours read, `step` elements apart. `terms`: of each, `apart` elements apart.
    """
    reads = [{n * step + t * apart for n in range(sums)} for t in range(terms)]
    before, waiting = set[int](), 0
    for n, each in enumerate(reads[:-1]):
        before |= each
        waiting = max(waiting, len(before & set().union(*reads[n + 1 :])))
    return len(set().union(*reads)), waiting
