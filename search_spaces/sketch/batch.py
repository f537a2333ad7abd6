"""Many tilings at once, as arrays: to look at thousands of them takes as long as to look at one as an object."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.dot_products import TILES
from autotune.search_spaces.sketch.contraction import Contraction
from autotune.search_spaces.sketch.rules import (
    ALL,
    FACTOR_TILES,
    MOST_BODY,
    block_size,
    folded,
    interleaved,
    long,
    narrow,
    remainder,
    term_orders,
    too_many,
)
from autotune.search_spaces.sketch.tiling import BLOCK, NO, ONCE, Tiling
from autotune.search_spaces.space.knobs import Choice
from autotune.target import Target

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
PLACES = (NO, ONCE, BLOCK)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The attributes of `Tiling`, a row for each.

    `packs` numbers them as `PLACES` does, `dot` the instructions of the contraction from 1 on, 0 for none.
    """

    vector: Integers
    lanes: Integers
    tile: Integers
    block: Integers
    outer: Integers
    inner: Integers
    terms: Integers
    depth: Integers
    unroll: Integers
    packs: Integers
    shared: Integers
    dot: Integers
    skip: Flags
    slide: Flags
    ahead: Integers
    upright: Integers
    height: Integers

    @staticmethod
    def of(c: Contraction, tilings: Sequence[Tiling]) -> Batch:
        columns: dict[str, NDArray[Any]] = {
            each.name: np.array([getattr(t, each.name) for t in tilings], np.int64)
            for each in fields(Batch)
            if each.name not in ("packs", "dot")
        }
        columns |= {name: columns[name].astype(np.bool_) for name in ("skip", "slide")}
        packs = np.array([[PLACES.index(p) for p in t.packs] for t in tilings], np.int64)
        dot = np.array([instructions(c).index(t.dot) for t in tilings], np.int64)
        return Batch(**columns, packs=packs, dot=dot)

    def take(self, rows: Integers) -> Batch:
        """The rows of these numbers, in their order."""
        return Batch(*(getattr(self, each.name)[rows] for each in fields(Batch)))

    def turns(self, c: Contraction) -> Integers:
        """(rows,) turns of the loops of the sum that are written out."""
        return np.asarray(np.where(self.unroll == ALL, math.prod(a.extent for a in c.reduce), self.unroll))

    def along(self) -> Flags:
        """(rows, axes) which axis vectors lie along."""
        return np.asarray(np.arange(self.tile.shape[1])[None, :] == self.vector[:, None])

    def units(self) -> Integers:
        """(rows, axes) elements that one of the registers has."""
        rows = np.arange(self.tile.shape[1])[None, :] == self.upright[:, None]
        return np.asarray(np.where(self.along(), self.lanes[:, None], np.where(rows, self.height[:, None], 1)))

    def elements(self) -> Integers:
        """(rows, axes) elements of the register tile."""
        return self.tile * self.units()


def instructions(c: Contraction) -> tuple[str, ...]:
    """What a tiling may sum with: products by multiply-adds, or the instructions that fold."""
    return (NO, *(f.dot.name for f in c.foldings))


class Decoder:
    """From the numbers of knobs' values to tilings, and which of them are valid.

    Args:
        c: what is computed.
        knobs: of its space.
    """

    def __init__(self, c: Contraction, knobs: Sequence[Choice], target: Target) -> None:
        self.c, self.registers, self.widens = c, target.num_vector_registers, bool(narrow(c, target))
        self.sizes = np.array([len(knob.values) for knob in knobs])
        self._column = {knob.name: n for n, knob in enumerate(knobs)}
        names = [a.name for a in c.spatial]
        self._tables: dict[str, Integers] = {}
        for knob in knobs:
            values = [names.index(str(v)) for v in knob.values] if knob.name == "vector" else list(knob.values)
            if knob.name.startswith("pack."):
                values = [PLACES.index(str(v)) for v in knob.values]
            if knob.name == "dot":
                values = [instructions(c).index(str(v)) for v in knob.values]
            self._tables[knob.name] = np.array(values, np.int64)
        # By instruction and vector axis: the axis along which rows of tiles lie, and how many.
        self._upright = np.full((1 + len(c.foldings), len(c.spatial)), -1)
        self._height = np.ones_like(self._upright)
        for n, folding in enumerate(c.foldings, 1):
            for vector, upright in enumerate(folding.upright):
                if upright >= 0:
                    self._upright[n, vector] = upright
                    self._height[n, vector] = folding.height(c.spatial[upright].extent)

    def batch(self, numbers: Integers) -> Batch:
        """(rows, knobs) numbers of values as tilings."""
        c, rows = self.c, len(numbers)

        def value(name: str, other: Sequence[int] | int) -> Integers:
            if name in self._column:
                return self._tables[name][numbers[:, self._column[name]]]
            return np.broadcast_to(np.array(other, np.int64), (rows, *np.shape(other)))

        vector, lanes, tile, dot = value("vector", 0), value("lanes", 0), value("tile", 0), value("dot", 0)
        upright, height = self._upright[dot, vector], self._height[dot, vector]
        alone = [n for n, a in enumerate(c.spatial) if a.extent == 1]
        block = np.ones_like(tile)
        for n, a in enumerate(c.spatial):
            unit = np.where(vector == n, lanes, np.where(upright == n, height, 1))
            count = -(-a.extent // (tile[:, n] * unit))
            wanted = value(f"block.{a.name}", 0)
            block[:, n] = _block_sizes(count, wanted, c.product & (vector == n))
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
            value("depth", 0),
            value("unroll", 1),
            packs,
            len(alone) + value("shared", 1),
            dot,
            value("skip", 0).astype(np.bool_),
            value("slide", 0).astype(np.bool_),
            value("ahead", 0),
            upright,
            height,
        )

    def valid(self, b: Batch) -> Flags:
        """(rows,) whether the constraints of the space hold."""
        c = self.c
        rows = np.arange(len(b.vector))
        size, vectors = b.tile.prod(1), b.tile[rows, b.vector]
        tiled = b.upright >= 0
        shared = np.minimum(vectors, size // vectors)
        over = too_many(size, shared, None, self.registers, self.widens)
        for n, folding in enumerate(c.foldings, 1):
            turned = np.zeros(len(rows), np.bool_)
            for k, f in enumerate(c.factors):
                along = np.array([a.name in f.axes() for a in c.spatial])[b.vector]
                panels = (b.packs[:, k] > 0) | (f.constant and f.plain)
                turned |= along & ~panels & interleaved(c, folding, f, b.lanes)
            turns = turned.astype(np.int64)
            over = np.where(b.dot == n, too_many(size, shared, folding.dot, self.registers, turned=turns), over)
        ok = over <= 0
        ok &= ~tiled | (size + FACTOR_TILES + (self._rest(b) > 0) <= TILES)
        elements, units = b.elements(), b.units()
        ragged = np.zeros(len(rows), np.int64)
        for n, a in enumerate(c.spatial):
            ok &= elements[:, n] <= -(-a.extent // units[:, n]) * units[:, n]
            ok &= (a.period % elements[:, n] == 0) if a.period else True
            tiles = -(-a.extent // elements[:, n])
            ragged += (a.extent % elements[:, n] != 0) | (tiles % b.block[:, n] != 0)
            ragged += (n in c.edges) & c.product & (elements[:, n] > 1) & (tiles > 1)
        ok &= size * b.turns(c) * c.body * 2**ragged <= MOST_BODY
        last = b.terms[:, -1]
        terms = c.terms()
        for n, folding in enumerate(c.foldings, 1):
            folds = np.array([folded(c, folding, x) > 0 for x in terms])
            rest = np.array([remainder(folding, x) for x in terms])[last]
            turn = np.minimum(folding.dot.extent * b.unroll, np.array([x.extent for x in terms])[last])
            fits = np.isin(b.lanes, folding.lanes) & (rest % turn == 0) & (tiled == folding.dot.tiled)
            if folding.extent > c.reduce[folding.axis].extent:
                here = [(b.packs[:, k] == 0) | f.constant for k, f in enumerate(c.factors) if folding.zeros[k]]
                fits &= np.any(here, axis=0)
            ok &= (b.dot != n) | (folds[last] & fits)
        for k, f in enumerate(c.factors if c.product else ()):
            strides = [f.stride(a.name) for a in c.spatial]
            beside, still = (np.array([s in kinds for s in strides]) for kinds in ((0, 1), (0,)))
            panels = (b.packs[:, k] > 0) & f.plain | (f.constant and f.plain)
            ok &= panels | beside[b.vector]
            ends = [n for n, x in enumerate(c.foldings, 1) if x.panels[k]]
            apart = [n for n, x in enumerate(c.foldings, 1) if f.stride(c.reduce[x.axis].name) != 1]
            ok &= panels | ~(np.isin(b.dot, ends) | (np.isin(b.dot, apart) & still[b.vector]))
            ok &= panels | ~tiled | (still[b.vector] & ~np.isin(b.dot, apart))
        return np.asarray(ok)

    def draw(self, rng: np.random.Generator, count: int) -> Integers:
        """(count, knobs) random numbers of values, about as many for each instruction.

        Of tile registers there are few: large tiles, which is most of all tiles, are for others.
        """
        drawn = rng.integers(0, self.sizes, (count, len(self.sizes)))
        if (self._upright < 0).all():
            return drawn
        tile, dot = self._column["tile"], self._tables["dot"][drawn[:, self._column["dot"]]]
        few = np.flatnonzero(self._tables["tile"].prod(1) <= TILES - FACTOR_TILES)
        tiled = np.isin(dot, np.flatnonzero((self._upright >= 0).any(1)))
        drawn[tiled, tile] = few[drawn[tiled, tile] % len(few)]
        return drawn

    def _rest(self, b: Batch) -> Integers:
        """(rows,) rows of the last tile, where there are fewer than in the others; else 0."""
        extents = np.array([a.extent for a in self.c.spatial])
        return np.asarray(extents[b.upright] % b.height)


def _block_sizes(count: Integers, wanted: Integers, whole: Flags) -> Integers:
    """`block_size` of each row."""
    most = np.where(wanted > 0, np.minimum(wanted, count), count)
    sizes = -(-count // -(-count // most))
    rows = np.flatnonzero(whole)
    if len(rows):
        limit = int(count.max()) + 1
        kinds, places = np.unique(count[rows] * limit + most[rows], return_inverse=True)
        sizes[rows] = np.array([block_size(*divmod(kind, limit), True) for kind in kinds.tolist()], np.int64)[places]
    return np.asarray(sizes)
