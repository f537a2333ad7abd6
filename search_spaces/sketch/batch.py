"""Many tilings at once, as arrays: to look at thousands of them takes as long as to look at one as an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.search_spaces.sketch.contraction import Contraction
from autotune.search_spaces.sketch.rules import MOST_BODY, block_size, long, term_orders
from autotune.search_spaces.sketch.tiling import BLOCK, NO, ONCE, Tiling
from autotune.search_spaces.space.knobs import Choice
from autotune.target import Target

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
PLACES = (NO, ONCE, BLOCK)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The attributes of `Tiling`, a row for each; `packs` numbers them as `PLACES` does."""

    vector: Integers
    lanes: Integers
    tile: Integers
    block: Integers
    outer: Integers
    inner: Integers
    terms: Integers
    unroll: Integers
    packs: Integers
    shared: Integers
    dot: Flags
    skip: Flags

    @staticmethod
    def of(tilings: Sequence[Tiling]) -> Batch:
        columns = {
            name: np.array([getattr(t, name) for t in tilings], np.int64)
            for name in ("vector", "lanes", "tile", "block", "outer", "inner", "terms", "unroll", "shared")
        }
        packs = np.array([[PLACES.index(p) for p in t.packs] for t in tilings], np.int64)
        dot, skip = (np.array([getattr(t, name) for t in tilings], np.bool_) for name in ("dot", "skip"))
        return Batch(**columns, packs=packs, dot=dot, skip=skip)

    def along(self) -> Flags:
        """(rows, axes) which axis vectors lie along."""
        return np.asarray(np.arange(self.tile.shape[1])[None, :] == self.vector[:, None])

    def elements(self) -> Integers:
        """(rows, axes) elements of the register tile."""
        return self.tile * np.where(self.along(), self.lanes[:, None], 1)


class Decoder:
    """From the numbers of knobs' values to tilings, and which of them are valid.

    Args:
        c: what is computed.
        knobs: of its space.
    """

    def __init__(self, c: Contraction, knobs: Sequence[Choice], target: Target) -> None:
        self.c, self.registers = c, target.num_vector_registers
        self.sizes = np.array([len(knob.values) for knob in knobs])
        self._column = {knob.name: n for n, knob in enumerate(knobs)}
        names = [a.name for a in c.spatial]
        self._tables: dict[str, Integers] = {}
        for knob in knobs:
            values = [names.index(str(v)) for v in knob.values] if knob.name == "vector" else list(knob.values)
            if knob.name.startswith("pack."):
                values = [PLACES.index(str(v)) for v in knob.values]
            self._tables[knob.name] = np.array(values, np.int64)

    def batch(self, numbers: Integers) -> Batch:
        """(rows, knobs) numbers of values as tilings."""
        c, rows = self.c, len(numbers)

        def value(name: str, other: Sequence[int] | int) -> Integers:
            if name in self._column:
                return self._tables[name][numbers[:, self._column[name]]]
            return np.broadcast_to(np.array(other, np.int64), (rows, *np.shape(other)))

        vector, lanes, tile = value("vector", 0), value("lanes", 0), value("tile", 0)
        alone = [n for n, a in enumerate(c.spatial) if a.extent == 1]
        block = np.ones_like(tile)
        for n, a in enumerate(c.spatial):
            count = -(-a.extent // (tile[:, n] * np.where(vector == n, lanes, 1)))
            wanted = value(f"block.{a.name}", 0)
            block[:, n] = _block_sizes(count, wanted, vector == n)
        orders = []
        for name in ("outer", "inner"):
            moving = value(name, long(c.spatial))
            orders.append(np.concatenate([np.broadcast_to(np.array(alone, np.int64), (rows, len(alone))), moving], 1))
        packs = np.stack([value(f"pack.{f.tensor}", 0) for f in c.factors], axis=1)
        return Batch(
            vector,
            lanes,
            tile,
            block,
            orders[0],
            orders[1],
            value("terms", term_orders(c)[0]),
            value("unroll", 1),
            packs,
            len(alone) + value("shared", 1),
            value("dot", 0).astype(np.bool_),
            value("skip", 0).astype(np.bool_),
        )

    def valid(self, b: Batch) -> Flags:
        """(rows,) whether the constraints of the space hold."""
        c = self.c
        rows = np.arange(len(b.vector))
        size, vectors = b.tile.prod(1), b.tile[rows, b.vector]
        ok = size + np.minimum(vectors, size // vectors) + 1 <= self.registers + self.registers // 8
        elements = b.elements()
        ragged = np.zeros(len(rows), np.int64)
        for n, a in enumerate(c.spatial):
            lanes = np.where(b.vector == n, b.lanes, 1)
            ok &= elements[:, n] <= -(-a.extent // lanes) * lanes
            ok &= (a.period % elements[:, n] == 0) if a.period else True
            ragged += (a.extent % elements[:, n] != 0) | (-(-a.extent // elements[:, n]) % b.block[:, n] != 0)
        ok &= size * b.unroll * 2**ragged <= MOST_BODY
        last = b.terms[:, -1]
        terms = c.terms()
        folds = np.array([x.axis == c.dot_axis and (c.dot is None or x.extent % c.dot.extent == 0) for x in terms])
        ok &= ~b.dot | folds[last]
        for k, f in enumerate(c.factors):
            strides = [f.stride(a.name) for a in c.spatial]
            beside, still = (np.array([s in kinds for s in strides]) for kinds in ((0, 1), (0,)))
            panels = (b.packs[:, k] > 0) & f.plain | (f.constant and f.plain)
            ok &= panels | np.where(b.dot, still[b.vector], beside[b.vector])
            if c.dot is not None and f.stride(c.reduce[c.dot_axis].name) != 1:
                ok &= panels | ~b.dot
        return np.asarray(ok)


def _block_sizes(count: Integers, wanted: Integers, whole: Flags) -> Integers:
    kinds, places = np.unique(np.stack([count, wanted, whole], axis=1), axis=0, return_inverse=True)
    sizes = np.array([block_size(int(n), int(w), bool(v)) for n, w, v in kinds], np.int64)
    return sizes[places.reshape(-1)]
