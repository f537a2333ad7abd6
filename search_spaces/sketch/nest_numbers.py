"""What the loop nests of tilings do, in closed form and for many at once: cycles of work, loads and traffic per level.

The numbers are named after what a nest does, not after knobs, and are in units of the machine: cycles relative to the
least that the workload's multiply-adds take. So they mean the same for every operator and every CPU. Traffic follows
the usual analysis of perfect nests (Ansor, OSDI'20; Halide's autoscheduler, SIGGRAPH'19): the outermost loop inside
which everything fits a cache decides what comes from behind it, and how often.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.core import LINE, PAGE
from autotune.search_spaces.sketch.batch import Batch, Integers
from autotune.search_spaces.sketch.contraction import Contraction
from autotune.search_spaces.sketch.copies import copying_cycles
from autotune.search_spaces.sketch.factor import Factor
from autotune.search_spaces.sketch.instructions import folded_products, gains, preparing, throughput
from autotune.search_spaces.sketch.lines import torn_loads, written
from autotune.search_spaces.sketch.windows import Windows
from autotune.target import Target

Array = NDArray[np.float64]
TILE_WORD = 4
"""Bytes along a row of a tile register that belong to one column."""
TEST = 2
"""Instructions of a test: a comparison and a jump."""
ROOM = 0.75
"""Share of a cache that what is kept may take; not measured, but what the shipped forest has learned with."""

NAMES = (
    "log_work", "cycles", "multiplies", "waiting", "loads", "l1", "l2", "l3", "copying", "storing", "balance",
    "units", "accumulators", "registers", "vectors", "rows", "width", "code", "wasted", "ragged", "turns",
    "inner_footprint", "gathered_lines", "aliasing", "dot", "streams", "pages", "sliding", "broadcasts",
    "converting", "ends", "scattered", "skipping", "copies", "threads", "depth", "far", "parts", "ahead", "bytes",
    "folds", "product", "step", "testing", "masked", "again", "held", "torn", "written", "joined",
)  # fmt: skip


class NestNumbers:
    """The numbers of one contraction's tilings on a target.

    Args:
        loose: numbers of the spatial axes that end about where they do in `c`, in the midst of a tile that is computed.
    """

    def __init__(self, c: Contraction, target: Target, loose: Sequence[int] = ()) -> None:
        self.c, self.target, self.core = c, target, target.core
        self.loose = np.array([n in loose for n in range(len(c.spatial))])
        self.extents = np.array([a.extent for a in c.spatial], np.float64)
        self.terms = np.array([a.extent for a in c.reduce], np.float64)
        self.kind = "fma.f64" if c.lanes * 64 == target.vector_bits else "fma.f32"
        self.bits = target.vector_bits
        pipe = self.core.pipe(self.kind, self.bits)
        self.rate = pipe.per_cycle if pipe else 1.0

    @property
    def bound(self) -> float:
        """Cycles that the work takes at least, on all threads together, without a dot-product instruction."""
        arithmetic = self.c.points * self.c.body / (self.c.lanes * self.rate)
        return max(arithmetic, self.moved) / self.target.num_threads

    @property
    def moved(self) -> float:
        """Cycles in which a map reads and writes everything once; 0 for products, which read it again and again."""
        size = 0.0 if self.c.product else sum(math.prod(f.shape) * f.bytes for f in self.c.factors)
        return size / self.rate_behind(size)

    def rate_behind(self, size: float) -> float:
        """Bytes a cycle from the cache, or the memory, that so many bytes stay in."""
        core, target = self.core, self.target
        if size <= target.l2_bytes:
            return core.l2
        return core.l3 if size <= target.l3_bytes else core.dram

    def of(self, batch: Batch) -> Array:
        """(tilings, len(NAMES)) numbers."""
        return _Counted(self, batch).numbers()

    def cycles(self, batch: Batch) -> Array:
        """(tilings,) the column of cycles alone, in two thirds of the time."""
        return _Counted(self, batch).numbers(only_cycles=True)

    def idle(self, batch: Batch) -> Array:
        """(tilings,) octaves by which there are fewer units of work than threads, if the output's memory ends with it.

        The numbers suppose that it goes on, as blocked layouts do: only who knows the layouts knows more.
        """
        if self.target.num_threads == 1:
            return np.zeros(len(batch.vector))
        _, each = _Counted(self, batch).balance(room=False)
        return np.asarray(np.maximum(-np.log2(each), 0.0))


def _pieces(extents: Array, size: Array, loose: NDArray[np.bool_]) -> Array:
    """How many pieces of a size there are; of what ends anywhere, half of the last one is beyond the end on average."""
    found = np.maximum(extents / size + np.where(loose, (1 - 1 / size) / 2, 0.0), 1.0)
    return np.asarray(np.where(loose, found, np.ceil(found)))


def _shared(units: Array, threads: int) -> Array:
    """The share of the threads that have work while whole units are shared."""
    return np.asarray(units / threads / np.ceil(units / threads))


class _Counted:
    def __init__(self, n: NestNumbers, b: Batch) -> None:
        self.n, self.c, self.core, self.target = n, n.c, n.core, n.target
        self.b, self.many = b, len(b.vector)
        self.rows_index = np.arange(self.many)
        self.vector, self.outer, self.inner, self.terms, self.shared = b.vector, b.outer, b.inner, b.terms, b.shared
        deepest = float(n.terms[n.c.deep])
        self.parts = deepest / np.where(b.depth > 0, b.depth, deepest)
        self.lanes, self.unroll = b.lanes.astype(np.float64), b.turns(n.c).astype(np.float64)
        self.tile, self.block = b.tile.astype(np.float64), b.block.astype(np.float64)
        self.dot = b.dot > 0
        self.tiled, self.height = b.upright >= 0, b.height.astype(np.float64)
        self.folded = folded_products(n.c, b)
        self.packs = (b.packs > 0) | np.array([f.constant and f.plain for f in n.c.factors])
        self.along, self.elements = b.along(), b.elements().astype(np.float64)
        self.units = b.units()
        self.tiles = _pieces(n.extents, self.elements, n.loose)
        self.block = np.minimum(self.block, self.tiles)
        self.blocks = _pieces(self.tiles, self.block, n.loose)
        self.extents = np.where(n.loose, self.tiles * self.elements, n.extents)
        # Tiles, and blocks, of which the last is code of its own.
        self.cut = (n.extents % self.elements != 0) & ~n.loose
        self.left = (self.tiles % self.block != 0) & ~n.loose

    def numbers(self, only_cycles: bool = False) -> Array:
        c, n = self.c, self.n
        vectors = self.tile[self.rows_index, self.vector]
        size = self.tile.prod(1)
        rows = size / vectors
        steps = n.terms.prod() / self.folded
        rate, latency = throughput(c, self.target, n.kind, self.b)
        windows = Windows(c, self.b)
        asking = np.where(self.b.ahead > 0, vectors, 0.0)  # takes as long as loading
        each, held = [np.ones(self.many)] * len(c.reads), np.zeros(self.many)
        once = every = self._loads(vectors, each)
        if c.lanewise or not only_cycles:
            left, held = windows.shared()
            once = self._loads(vectors, left)
            each = left if c.lanewise else each
        loads = (once if c.lanewise else every) + asking  # broadcasts are parts of multiply-adds
        live = size + np.minimum(vectors, rows) + 1
        over = np.maximum(live + (held if c.lanewise else 0.0) - self.target.num_vector_registers, 0)
        multiplies, waiting, loading = self._steps(size, rate, latency, loads, over)
        multiplies = multiplies + preparing(c, self.target, self.b, self.packs, each) * self.tiles.prod(1) / self.n.rate
        kept = windows.kept()
        multiplies, waiting, loading = (x * steps * kept for x in (multiplies, waiting, loading))
        testing = TEST * windows.tests() * steps * self.tiles.prod(1) / n.rate
        arithmetic = np.maximum(np.maximum(multiplies, waiting), loading) + testing
        storing = self._storing()
        l1, l2, l3, inner, lines = self._traffic(self.parts)
        copying = copying_cycles(c, self.target, self.b, self.folded, self.n.rate_behind)
        balance, units = self.balance(room=True)
        waited = 0.5 * (l1 + np.where(self.b.ahead > 0, 0.0, l2 + l3))
        total = (np.maximum.reduce([arithmetic, l1, l2, l3]) + waited + storing) / balance + copying
        if not c.product or c.lanewise:  # little work between loads, and nothing to hide one behind the other
            total = (arithmetic + l1 + l2 + l3 + storing) / balance
        total = total / self.target.num_threads
        if only_cycles:
            return np.asarray(total / n.bound)
        # Of an instruction that folds, shares are of the least that it takes itself, as they are of others'.
        bound = n.bound * self.target.num_threads / gains(c, self.target, n.kind)[self.b.dot]
        ragged = self.cut.sum(1) + self.left.sum(1)
        wasted = (self.tiles * self.elements).prod(1) / n.extents.prod()
        code = size * self.unroll * 2.0**ragged
        columns = (
            np.full(self.many, np.log2(c.points)),
            total / n.bound,
            multiplies / bound,
            waiting / bound,
            loading / bound,
            l1 / bound,
            l2 / bound,
            l3 / bound,
            copying / bound,
            storing / bound,
            balance,
            np.log2(units),
            size * 1.0 / (rate * latency),
            live / self.target.num_vector_registers,
            vectors,
            rows,
            self.lanes / c.lanes,
            np.log2(code),
            wasted,
            ragged * 1.0,
            np.log2(np.maximum(steps / self.unroll, 1)),
            np.log2(np.maximum(inner, 1) / self.target.l1_bytes),
            lines,
            self._aliasing(),
            self.dot * 1.0,
            *self._streams(),
            self._sliding(),
            self._broadcasts(),
            self._converting(size) * steps / bound,
            self.ends,
            (self.vector != c.last) * 1.0,
            1.0 - kept,
            (self.b.packs > 0).sum(1) * 1.0,
            np.full(self.many, np.log2(self.target.num_threads)),
            np.log2(steps),
            l3 / np.maximum(arithmetic, 1.0),
            np.log2(self.parts),
            np.log2(1.0 + self.b.ahead * vectors),
            np.full(self.many, math.log2(min((f.bytes for f in c.reads), default=c.stored))),
            np.log2(self.folded),
            np.full(self.many, float(c.product)),
            self._innermost(),
            testing / bound,
            windows.masked(),
            1.0 - once / np.maximum(every, 1.0),
            held / self.target.num_vector_registers,
            torn_loads(c, self.b, self.packs) * kept * steps * self.tiles.prod(1) / self.core.loads / bound,
            *written(c, self.b),
        )
        found = np.empty((self.many, len(columns)))
        for place, column in enumerate(columns):
            found[:, place] = column
        return found

    def _loads(self, vectors: Array, left: list[Array]) -> Array:
        """Loads of a step of a tile: vectors along the vector axis, broadcasts of all else; of tiles, their rows.

        Args:
            left: per factor, the share that is left of them.
        """
        total = np.zeros(self.many)
        for f, share in zip(self.c.reads, left):
            moves = np.array([a.name in f.axes() for a in self.c.spatial])
            groups = self.folded * f.bytes / TILE_WORD
            rows = np.where(self.tiled, np.where(moves[self.vector], groups, self.height), 1.0)
            loads = share * rows * np.where(moves[None, :], self.tile, 1.0).prod(1)
            total += loads if self.c.product else loads * self._gathering(f)
        return total

    def _gathering(self, f: Factor) -> Array:
        """Loads for a vector: one of neighbours, those that neighbours a step apart lie in, one for each lane.

        Rows that several turns of the tile read on are loaded in pieces of 16 bytes, and turned in registers.
        """
        steps = [f.stride(a.name) for a in self.c.spatial]
        apart = np.array([np.inf if x is None else max(abs(x), 1) for x in steps])[self.vector]
        piece = 16 / f.bytes
        beside = np.array([x == 1 for x in steps])[None, :] & ~self.along
        turned = (beside & (self.tile >= piece)).any(1)
        return np.asarray(np.minimum(apart, np.where(turned, self.lanes / piece, self.lanes)))

    def _steps(self, size: Array, rate: Array, latency: Array, loads: Array, over: Array) -> tuple[Array, Array, Array]:
        """Cycles of one step of all tiles, whole ones and those at the ends: multiplying, waiting, loading."""
        n = self.n
        whole = np.where(n.loose, self.tiles, np.floor(n.extents / self.elements))
        rest = self.extents - whole * self.elements
        rest = np.ceil(rest / self.units)
        uneven = [a for a in range(len(n.extents)) if (rest[:, a] > 0).any()]
        # Products before the one that is added, and what else a map computes.
        extra = (len(self.c.factors) - 2 if self.c.product else self.c.body - 1) * size
        spilling = 1.0 + self.core.loads / self.core.stores  # stored, and loaded again
        out = [np.zeros(self.many) for _ in range(3)]
        for ends in itertools.product((False, True), repeat=len(uneven)):
            count, shape = np.ones(self.many), self.tile.copy()
            for a in range(len(n.extents)):
                end = a in uneven and ends[uneven.index(a)]
                count = count * ((rest[:, a] > 0) if end else whole[:, a])
                shape[:, a] = np.where(rest[:, a] > 0, rest[:, a], 1.0) if end else shape[:, a]
            part = shape.prod(1)
            share = part / size
            out[0] += count * (part + extra * share) / rate
            out[1] += count * np.where(part < rate * latency, latency, 0.0)
            out[2] += count * (loads * np.sqrt(share) + spilling * over + 1.0 / self.unroll) / self.core.loads
        self.ends = 1.0 - whole.prod(1) * size / np.maximum(rate * out[0], 1.0)
        return out[0], out[1], out[2]

    def _streams(self) -> tuple[Array, Array]:
        """Rows that a step reads from lines of their own, and those of them on pages of their own."""
        lines, pages = np.zeros(self.many), np.zeros(self.many)
        for k, f in enumerate(self.c.factors):
            for count, least in ((lines, LINE), (pages, PAGE)):
                apart = np.array([abs(f.stride(a.name) or 0) * f.bytes >= least for a in self.c.spatial])
                count += np.where(self.packs[:, k], 1.0, np.where(apart[None, :], self.tile, 1.0).prod(1))
        return lines, pages

    def _sliding(self) -> Array:
        """Turns of the innermost loop written out, where they read what neighbours in the tile read, too.

        LLVM keeps what they share in registers, which are too few for it.
        """
        terms, found = self.c.terms(), np.zeros(self.many)
        for k, term in enumerate(terms):
            name = self.c.reduce[term.axis].name
            axes = {x for f in self.c.factors for parts in f.steps if name in dict(parts) for x in dict(parts)}
            along = np.array([a.name in axes for a in self.c.spatial])
            shared = (np.where(along[None, :], self.tile, 1.0).prod(1) > 1) & (self.terms[:, -1] == k)
            found = np.where(shared, np.minimum(self.unroll, term.extent), found)
        return found

    def _innermost(self) -> Array:
        """Octaves of elements between what two turns of the innermost loop read, where that is farthest apart."""
        names = [self.c.reduce[term.axis].name for term in self.c.terms()]
        apart = [max(abs(f.stride(name) or 0) for f in self.c.reads) if name else 0 for name in names]
        return np.asarray(np.log2(1.0 + np.array(apart, np.float64))[self.terms[:, -1]])

    def _broadcasts(self) -> Array:
        """Share of the loads of a step that fill a vector with one element."""
        one, all_ = np.zeros(self.many), np.zeros(self.many)
        for f in self.c.factors:
            moves = np.array([a.name in f.axes() for a in self.c.spatial])
            loads = np.where(moves[None, :], self.tile, 1.0).prod(1)
            one += np.where(moves[self.vector], 0.0, loads)
            all_ += loads
        return np.asarray(one / all_)

    def _converting(self, size: Array) -> Array:
        """Cycles of a step of all tiles to widen elements that are stored in fewer bytes."""
        total = np.zeros(self.many)
        for f in (f for f in self.c.reads if f.bytes * self.c.lanes * 8 < self.target.vector_bits):
            moves = np.array([a.name in f.axes() for a in self.c.spatial])
            total += np.where(self.dot, 0.0, np.where(moves[None, :], self.tile, 1.0).prod(1))
        return np.asarray(total * self.tiles.prod(1))

    def _storing(self) -> Array:
        """Cycles to write results, and to read what is fused behind the sum."""
        c, n = self.c, self.n
        vectors = self.extents.prod(1) / self.lanes
        scattered = np.where(self.vector == c.last, 1.0, self.lanes)
        each: Array = scattered * (1 + (c.extra > 0)) / self.core.stores
        far = n.extents.prod() * (c.stored + c.extra) / self.n.rate_behind(n.extents.prod() * c.stored)
        # Partial sums are read and written where a block of results stays.
        width = self.target.vector_bits // 8 // c.lanes
        block = (self.elements * self.block).clip(max=self.extents).prod(1) * width
        near = np.where(block <= ROOM * self.target.l2_bytes, 2 * width / self.core.l2, 2 * width / self.core.l3)
        near = np.where(block <= ROOM * self.target.l1_bytes, 0.0, near)
        parts = vectors * (1 / self.core.stores + 1 / self.core.loads + near * self.lanes)
        # Tile registers are copied to memory, and read again as vectors.
        copies = np.where(self.tiled, self.parts * vectors * (1 / self.core.stores + 1 / self.core.loads), 0.0)
        return np.asarray(vectors * each + far + copies + np.where(self.parts > 1, self.parts * parts, 0.0))

    def _traffic(self, parts: Array) -> tuple[Array, Array, Array, Array, Array]:
        """(cycles of what L2 gives, L3, memory; bytes that a tile's sum reads; bytes of lines over bytes needed).

        Args:
            parts: of the sum, one after the other for all tiles of a block.
        """
        c, n = self.c, self.n
        rank, depth = len(c.spatial), len(c.reduce)
        loops: list[tuple[Integers, Array, bool]] = []  # innermost first: (axis, turns, spatial)
        spatial, terms = self.elements.copy(), np.ones((self.many, depth))
        cover = [(spatial.copy(), terms.copy())]

        def add(sizes: Array, axis: Integers, turns: Array, size: Array, is_spatial: bool) -> None:
            """A loop after which a part has `size` elements along its axis; one that never turns is none."""
            if (turns > 1).any() or (sizes[self.rows_index, axis] != size).any():
                sizes[self.rows_index, axis] = size
                loops.append((axis, turns, is_spatial))
                cover.append((spatial.copy(), terms.copy()))

        axes, turns_of = np.array([x.axis for x in c.terms()]), np.array([float(x.extent) for x in c.terms()])
        outermost = np.array([x.part != "inner" for x in c.terms()])
        for k in reversed(range(len(axes))):
            axis, turns = axes[self.terms[:, k]], np.asarray(turns_of[self.terms[:, k]], np.float64)
            turns = np.where((axis == c.deep) & outermost[self.terms[:, k]], turns / parts, turns)
            if k == len(axes) - 1:  # an instruction of tiles reads whole lines, all at once
                together = np.where(self.tiled, self.folded, 1.0)
                terms[self.rows_index, axis] = together
                cover[0] = (spatial.copy(), terms.copy())
                turns = np.maximum(turns / together, 1.0)
            size = np.minimum(terms[self.rows_index, axis] * turns, n.terms[axis])
            add(terms, axis, turns, size, is_spatial=False)
        innermost = len(loops)
        for order, count in ((self.inner, self.block), (self.outer, self.blocks)):
            if order is self.outer:  # inside a block, part of the sum after part
                axis = np.full(self.many, c.deep)
                add(terms, axis, parts, n.terms[axis], is_spatial=False)
            for k in reversed(range(rank)):
                axis = order[:, k]
                turns = count[self.rows_index, axis]
                size = spatial[self.rows_index, axis]
                wide = np.minimum(size * turns, self.extents[self.rows_index, axis])
                if not c.product:  # what lies behind the ends is not touched; panels have it
                    turns = np.where(turns > 1, wide / size, turns)
                add(spatial, axis, turns, wide, is_spatial=True)
        spatial_of, terms_of = (np.stack(each) for each in zip(*cover))
        foot = np.stack([self._footprint(k, f, spatial_of, terms_of) for k, f in enumerate(c.factors)])
        total = foot.sum(0)  # (levels, many)
        inner = total[innermost]
        along, over = (np.array([[a.name in f.axes() for a in x] for f in c.factors]) for x in (c.spatial, c.reduce))
        # The same walk for each cache: all that fits stays, what does not comes again for every turn outside.
        core, target = self.core, self.target
        shared = target.num_threads
        rates = (core.l2, min(core.l3, core.l3_shared / shared), min(core.dram, core.dram_shared / shared))
        room = ROOM * np.array([target.l1_bytes, target.l2_bytes, target.l3_bytes / shared])
        fits = total <= room[:, None, None]
        level = np.where(fits.any(1), len(cover) - 1 - np.argmax(fits[:, ::-1], axis=1), 0)  # (caches, many)
        # Of neighbours, only what is new is read, where the lines of all rows are kept.
        kept = np.array([self._rivals(k, f) <= 1 for k, f in enumerate(c.factors)])[:, None] & c.product
        first = np.broadcast_to(level, (len(c.factors), *level.shape))
        times, started = np.ones(first.shape), np.zeros(first.shape, bool)
        for place, (axis, turns, is_spatial) in enumerate(loops):
            moves = (along if is_spatial else over)[:, axis] & (turns > 1)
            moving = (place >= level) & moves[:, None]
            begins = moving & ~started & kept
            first = np.where(begins, place + 1, first)
            started |= moving
            times = np.where(started & ~begins, times * turns, times)
        bytes_ = (np.take_along_axis(foot, first, axis=1) * times).sum(0)
        l1, l2, l3 = bytes_ / np.array(rates)[:, None]
        plain = sum(float(np.prod(f.shape)) * f.bytes for f in c.factors)
        return l1, l2, np.where(total[-1] <= room[-1], 0.0, l3), inner, total[-1] / max(plain, 1.0)

    def _footprint(self, k: int, f: Factor, spatial: Array, terms: Array) -> Array:
        """(levels, many) bytes of the lines that a factor's part lies on.

        Args:
            spatial, terms: (levels, many, axes) elements of a part along each axis.
        """
        names = {a.name: spatial[..., i] for i, a in enumerate(self.c.spatial)}
        names |= {a.name: terms[..., i] for i, a in enumerate(self.c.reduce)}
        spans = []
        for size, parts in zip(f.shape, f.steps):
            span = np.ones(spatial.shape[:-1])
            for axis, step in parts:
                span = span + abs(step) * (names[axis] - 1)
            spans.append(np.minimum(span, size))
        dense = np.prod([np.ones(spatial.shape[:-1]), *spans], axis=0) * f.bytes  # a scalar has no spans
        if self.packs[:, k].all():
            return np.asarray(dense)
        run, rest, open_ = np.ones(dense.shape), np.ones(dense.shape), np.ones(dense.shape, bool)
        for size, span in zip(reversed(f.shape), reversed(spans)):
            run = np.where(open_, run * span, run)
            rest = np.where(open_, rest, rest * span)
            open_ &= span >= size
        lines = rest * np.ceil(run * f.bytes / LINE) * LINE
        if not self.c.product:  # prefetchers go on behind the end of every run
            lines += np.where(open_, 0.0, rest * LINE)
        return np.where(self.packs[:, k], dense, lines)

    def balance(self, room: bool) -> tuple[Array, Array]:
        """(share of the threads that have work, units of work per thread).

        Args:
            room: whether vectors may be written behind the end of the output.
        """
        # Loops whose last turn is code of its own are not shared together with others (see `Tiles._share`).
        apart = self.left | (self.cut & ~(self.along & room))
        if self.c.product:
            cut = np.array([n in self.c.edges for n in range(len(self.n.extents))])
            apart |= cut & (self.elements > 1) & (self.tiles > 1)
        units, together, first = np.ones(self.many), np.ones(self.many, bool), np.ones(self.many, bool)
        for k in range(self.outer.shape[1]):
            axis = self.outer[:, k]
            turns, alone = self.blocks[self.rows_index, axis], apart[self.rows_index, axis]
            moving = turns > 1
            shared = moving & together & (first | ((k < self.shared) & ~alone))
            units = np.where(shared, units * turns, units)
            together &= ~moving | (shared & ~alone)
            first &= ~moving
        threads = self.target.num_threads
        whole, more = np.floor(units), units % 1  # of an end that data decides, as many on average
        return (1 - more) * _shared(whole, threads) + more * _shared(whole + 1, threads), units / threads

    def _aliasing(self) -> Array:
        """Rows of a tile that compete for the same lines of the first-level cache, in units of its ways."""
        return np.asarray(np.max([self._rivals(k, f) for k, f in enumerate(self.c.factors)], axis=0))

    def _rivals(self, k: int, f: Factor) -> Array:
        """The same of one factor."""
        ways = max(self.target.l1_bytes // PAGE, 1)
        worst = np.zeros(self.many)
        for i, a in enumerate(self.c.spatial):
            step = (f.stride(a.name) or 0) * f.bytes
            if step < LINE:
                continue
            sets = PAGE / np.gcd(int(step), PAGE)
            rivals = np.ceil(self.tile[:, i] / sets)
            worst = np.maximum(worst, np.where(self.packs[:, k] | (self.vector == i), 0.0, rivals / ways))
        return worst
