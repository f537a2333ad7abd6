"""What the loop nests of tilings do, in closed form and for many at once: cycles of work, loads and traffic per level.

The numbers are named after what a nest does, not after knobs, and are in units of the machine: cycles relative to the
least that the workload's multiply-adds take. So they mean the same for every operator and every CPU. Traffic follows
the usual analysis of perfect nests (Ansor, OSDI'20; Halide's autoscheduler, SIGGRAPH'19): the outermost loop inside
which everything fits a cache decides what comes from behind it, and how often.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.search_spaces.sketch.contraction import Contraction, Factor
from autotune.search_spaces.sketch.tiling import BLOCK, NO, Tiling
from autotune.target import Target

Array = NDArray[np.float64]
LINE = 64
"""Bytes that come from a cache together."""

NAMES = (
    "log_work",
    "cycles",
    "multiplies",
    "waiting",
    "loads",
    "l1",
    "l2",
    "l3",
    "copying",
    "storing",
    "balance",
    "units",
    "accumulators",
    "registers",
    "vectors",
    "rows",
    "width",
    "code",
    "wasted",
    "ragged",
    "turns",
    "inner_footprint",
    "gathered_lines",
    "aliasing",
    "dot",
    "streams",
)


class NestNumbers:
    """The numbers of one contraction's tilings on a target."""

    def __init__(self, c: Contraction, target: Target) -> None:
        self.c, self.target, self.core = c, target, target.core
        self.extents = np.array([a.extent for a in c.spatial], np.float64)
        self.terms = np.array([a.extent for a in c.reduce], np.float64)
        self.kind = "fma.f64" if c.lanes * 64 == target.vector_bits else "fma.f32"
        self.bits = target.vector_bits
        pipe = self.core.pipe(self.kind, self.bits)
        self.rate = pipe.per_cycle if pipe else 1.0

    @property
    def bound(self) -> float:
        """Cycles that the products take at least, on all threads together, without a dot-product instruction."""
        return self.c.points / (self.c.lanes * self.rate) / self.target.num_threads

    def of(self, tilings: Sequence[Tiling]) -> Array:
        """(len(tilings), len(NAMES)) numbers."""
        return _Batch(self, tilings).numbers()


class _Batch:
    def __init__(self, n: NestNumbers, tilings: Sequence[Tiling]) -> None:
        self.n, self.c, self.core, self.target = n, n.c, n.core, n.target
        self.many = len(tilings)
        self.rows_index = np.arange(self.many)
        self.vector = np.array([t.vector for t in tilings])
        self.lanes = np.array([t.lanes for t in tilings], np.float64)
        self.tile = np.array([t.tile for t in tilings], np.float64)
        self.block = np.array([t.block for t in tilings], np.float64)
        self.outer = np.array([t.outer for t in tilings])
        self.inner = np.array([t.inner for t in tilings])
        self.reduce = np.array([t.reduce for t in tilings])
        self.unroll = np.array([t.unroll for t in tilings], np.float64)
        self.shared = np.array([t.shared for t in tilings])
        self.dot = np.array([t.dot for t in tilings]) & (n.c.dot is not None)
        self.packs = np.array([[p != NO or (f.constant and f.plain) for p, f in zip(t.packs, n.c.factors)]
                               for t in tilings])  # fmt: skip
        self.copied = np.array([[(p != NO) + (p == BLOCK) for p in t.packs] for t in tilings])
        self.along = np.arange(len(n.c.spatial))[None, :] == self.vector[:, None]
        self.elements = self.tile * np.where(self.along, self.lanes[:, None], 1.0)
        self.tiles = np.ceil(n.extents / self.elements)
        self.blocks = np.ceil(self.tiles / self.block)

    def numbers(self) -> Array:
        c, n = self.c, self.n
        vectors = self.tile[self.rows_index, self.vector]
        size = self.tile.prod(1)
        rows = size / vectors
        steps = n.terms.prod() / np.where(self.dot, c.dot.extent if c.dot else 1, 1)
        rate, latency = self._pipe()
        loads = self._loads(vectors)
        live = size + np.minimum(vectors, rows) + 1
        over = np.maximum(live - self.target.num_vector_registers, 0)
        multiplies, waiting, loading = self._steps(size, rate, latency, loads, over)
        multiplies, waiting, loading = (x * steps for x in (multiplies, waiting, loading))
        arithmetic = np.maximum(np.maximum(multiplies, waiting), loading)
        storing = self._storing()
        l1, l2, l3, inner, lines = self._traffic()
        copying = self._copying()
        balance, units = self._balance()
        total = (np.maximum.reduce([arithmetic, l1, l2, l3]) + 0.5 * (l1 + l2 + l3) + storing) / balance + copying
        total = total / self.target.num_threads
        bound = n.bound * self.target.num_threads
        ragged = ((n.extents % self.elements) != 0).sum(1) + ((self.tiles % self.block) != 0).sum(1)
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
            (~self.packs).sum(1) * 1.0,
        )
        return np.stack([np.broadcast_to(x, (self.many,)) for x in columns], axis=1)

    def _pipe(self) -> tuple[Array, Array]:
        """(operations per cycle, latency) of the instruction that each tiling sums with."""
        rates, latencies = np.ones(self.many), np.full(self.many, 4.0)
        for lanes, dot in {(float(w), bool(d)) for w, d in zip(self.lanes, self.dot)}:
            bits = int(self.target.vector_bits * lanes / self.c.lanes)
            kind = self.n.kind
            if dot and self.c.dot is not None:
                kind = "dot.u8" if self.c.dot.extent == 4 else "dot.bf16"
            pipe = self.core.pipe(kind, bits)
            chosen = (self.lanes == lanes) & (self.dot == dot)
            if pipe is not None:
                rates[chosen], latencies[chosen] = pipe.per_cycle, pipe.latency
        return rates, latencies

    def _loads(self, vectors: Array) -> Array:
        """Loads of a step of a tile: vectors along the vector axis, broadcasts of all else."""
        total = np.zeros(self.many)
        for f in self.c.factors:
            moves = np.array([a.name in f.axes() for a in self.c.spatial])
            total += np.where(moves[None, :], self.tile, 1.0).prod(1)
        return total

    def _steps(self, size: Array, rate: Array, latency: Array, loads: Array, over: Array) -> tuple[Array, Array, Array]:
        """Cycles of one step of all tiles, whole ones and those at the ends: multiplying, waiting, loading."""
        n = self.n
        whole = np.floor(n.extents / self.elements)
        rest = n.extents - whole * self.elements
        rest = np.where(self.along, np.ceil(rest / self.lanes[:, None]), rest)
        uneven = [a for a in range(len(n.extents)) if (rest[:, a] > 0).any()]
        extra = (len(self.c.factors) - 2) * size  # products before the one that is added
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
            out[2] += count * (loads * np.sqrt(share) + 2 * over + 1.0 / self.unroll) / self.core.loads
        return out[0], out[1], out[2]

    def _storing(self) -> Array:
        """Cycles to write results, and to read what is fused behind the sum."""
        c, n = self.c, self.n
        last = max((i for i, a in enumerate(c.spatial) if a.extent > 1), default=0)
        vectors = n.extents.prod() / self.lanes
        scattered = np.where(self.vector == last, 1.0, self.lanes)
        each: Array = scattered * (1 + (c.extra > 0)) / self.core.stores
        far = n.extents.prod() * (c.stored + c.extra) / self._rate_behind(n.extents.prod() * c.stored)
        return np.asarray(vectors * each + far)

    def _rate_behind(self, size: float) -> float:
        core, target = self.core, self.target
        if size <= target.l2_bytes:
            return core.l2
        return core.l3 if size <= target.l3_bytes else core.dram

    def _traffic(self) -> tuple[Array, Array, Array, Array, Array]:
        """(cycles of what L2 gives, L3, memory; bytes that a tile's sum reads; bytes of lines over bytes needed)."""
        c, n = self.c, self.n
        rank, depth = len(c.spatial), len(c.reduce)
        loops: list[tuple[Array, Array, bool]] = []  # innermost first: (axis, turns, spatial)
        spatial = self.elements.copy()
        terms = np.ones((self.many, depth))
        cover = [(spatial.copy(), terms.copy())]
        for k in reversed(range(depth)):
            axis = self.reduce[:, k]
            terms[self.rows_index, axis] = n.terms[axis]
            loops.append((axis, n.terms[axis], False))
            cover.append((spatial.copy(), terms.copy()))
        for order, count in ((self.inner, self.block), (self.outer, self.blocks)):
            for k in reversed(range(rank)):
                axis = order[:, k]
                turns = count[self.rows_index, axis]
                wide = np.minimum(spatial[self.rows_index, axis] * turns, n.extents[axis])
                spatial[self.rows_index, axis] = wide
                loops.append((axis, turns, True))
                cover.append((spatial.copy(), terms.copy()))
        foot = np.stack([[self._footprint(k, f, s, t) for s, t in cover] for k, f in enumerate(c.factors)])
        total = foot.sum(0)  # (levels, many)
        inner = total[depth]
        moves = [self._moves(f, loops) for f in c.factors]
        # The same walk for each cache: all that fits stays, what does not comes again for every turn outside.
        cycles = []
        core, target = self.core, self.target
        shared = target.num_threads
        rates = (core.l2, min(core.l3, core.l3_shared / shared), min(core.dram, core.dram_shared / shared))
        for size, rate in zip((target.l1_bytes, target.l2_bytes, target.l3_bytes / shared), rates):
            fits = total <= 0.75 * size
            level = np.where(fits.any(0), len(cover) - 1 - np.argmax(fits[::-1], axis=0), 0)
            bytes_ = np.zeros(self.many)
            for k in range(len(c.factors)):
                times, started = np.ones(self.many), np.zeros(self.many, bool)
                for place, (_, turns, _) in enumerate(loops):
                    outside = place >= level
                    started |= outside & moves[k][place].astype(bool) & (turns > 1)
                    times = np.where(outside & started, times * turns, times)
                bytes_ += foot[k][level, self.rows_index] * times
            whole = total[-1] <= 0.75 * size
            cycles.append(np.where(whole & (size == target.l3_bytes / shared), 0.0, bytes_ / rate))
        least = np.stack([foot[k][-1] for k in range(len(c.factors))]).sum(0)
        plain = sum(float(np.prod(f.shape)) * f.bytes for f in c.factors)
        return cycles[0], cycles[1], cycles[2], inner, least / max(plain, 1.0)

    def _moves(self, f: Factor, loops: list[tuple[Array, Array, bool]]) -> list[Array]:
        of = np.array([a.name in f.axes() for a in self.c.spatial])
        over = np.array([a.name in f.axes() for a in self.c.reduce])
        return [of[axis.astype(int)] if spatial else over[axis.astype(int)] for axis, _, spatial in loops]

    def _footprint(self, k: int, f: Factor, spatial: Array, terms: Array) -> Array:
        """Bytes of the lines that a factor's part lies on."""
        names = {a.name: spatial[:, i] for i, a in enumerate(self.c.spatial)}
        names |= {a.name: terms[:, i] for i, a in enumerate(self.c.reduce)}
        spans = []
        for size, parts in zip(f.shape, f.steps):
            span = np.ones(self.many)
            for axis, step in parts:
                span = span + abs(step) * (names[axis] - 1)
            spans.append(np.minimum(span, size))
        dense = np.prod(spans, axis=0) * f.bytes
        run, rest = np.ones(self.many), np.ones(self.many)
        open_ = np.ones(self.many, bool)
        for size, span in zip(reversed(f.shape), reversed(spans)):
            run = np.where(open_, run * span, run)
            rest = np.where(open_, rest, rest * span)
            open_ &= span >= size
        lines = rest * np.ceil(run * f.bytes / LINE) * LINE
        return np.where(self.packs[:, k], dense, lines)

    def _copying(self) -> Array:
        """Cycles to copy operands into panels, on all threads together."""
        c = self.c
        total = np.zeros(self.many)
        for k, f in enumerate(c.factors):
            size = float(np.prod(f.shape)) * f.bytes
            rate = self._rate_behind(size)
            # Lanes of a panel that are not neighbours in memory are gathered one by one.
            names = [a.name for a in c.spatial]
            beside = np.array([f.stride(name) == 1 for name in names])[self.vector]
            moving = np.array([name in f.axes() for name in names])[self.vector]
            each = np.where(beside | ~moving, 2.0 / self.lanes, 1.0)
            again = np.ones(self.many)
            started = np.zeros(self.many, bool)
            of = np.array([name in f.axes() for name in names])
            for place in reversed(range(self.outer.shape[1])):
                axis = self.outer[:, place]
                turns = self.blocks[self.rows_index, axis]
                started |= of[axis]
                again = np.where(started & ~of[axis], again * turns, again)
            times = np.where(self.copied[:, k] == 2, again, 1.0)
            cost = size / f.bytes * each + 2 * size / rate
            total += np.where(self.copied[:, k] > 0, cost * times, 0.0)
        return total

    def _balance(self) -> tuple[Array, Array]:
        """(share of the threads that have work, units of work per thread)."""
        units = np.ones(self.many)
        for k in range(self.outer.shape[1]):
            axis = self.outer[:, k]
            units = np.where(k < self.shared, units * self.blocks[self.rows_index, axis], units)
        each = units / self.target.num_threads
        return each / np.ceil(each), each

    def _aliasing(self) -> Array:
        """Rows of a tile that compete for the same lines of the first-level cache, in units of its ways."""
        ways = max(self.target.l1_bytes // 4096, 1)
        worst = np.zeros(self.many)
        for k, f in enumerate(self.c.factors):
            for i, a in enumerate(self.c.spatial):
                step = f.stride(a.name) * f.bytes
                if step < LINE:
                    continue
                sets = 4096 / np.gcd(int(step), 4096)
                rivals = np.ceil(self.tile[:, i] / sets)
                worst = np.maximum(worst, np.where(self.packs[:, k] | (self.vector == i), 0.0, rivals / ways))
        return worst
