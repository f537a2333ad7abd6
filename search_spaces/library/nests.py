"""Loops for any kernel: physical order outside, one vector along contiguous memory inside, registers for sums.

`ConeScheduler` gives one root its loops and places every stage below it: sums that only the root reads in registers
inside all loops, everything else inside the row loops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from autotune.core import LINE, PAGE
from autotune.schedule import Schedule
from autotune.schedule.state import LOCAL, REGISTER, StageState
from autotune.search_spaces.library.access import (
    contiguous,
    innermost,
    irregular,
    stride,
    tabled,
    uses_positions,
    widest,
)
from autotune.search_spaces.library.fusion import Cone
from autotune.search_spaces.library.held import held_elements, rows_held, vectors_at_once, vectors_held, written_out
from autotune.search_spaces.library.placed import (
    FOLDS,
    MAX_LANES,
    elements,
    folded_lanes,
    folded_vectors,
    partial_results,
    scanned,
    sum_in_registers,
)
from autotune.target import Target
from autotune.tensor.expr import Read, Select, Var, walk
from autotune.tensor.layout import Layout

SCANNED = 4  # times as many rows of a scan as turns of other loops: each waits longer for its step before
MAX_WRITTEN_OUT = 600  # nodes of a body, indices included, in all turns that are written out
MAX_TABLED = 2400  # the same where elements are at places from a table
HELD = 8  # rows between stages take at most this part of the first-level cache: what comes and goes needs the rest


@dataclass(frozen=True, slots=True)
class Options:
    """What the knobs decide.

    Attributes:
        half: use vectors of half the width.
        unroll: how many turns of the innermost loop to write out.
        partials: how many vectors of partial results a sum along contiguous memory keeps.
        grain: how many turns of the parallel loop each thread should at least get.
        rows: how many rows at once go through the stages that fold them, so that the folds of one overlap the next.
    """

    half: bool = False
    unroll: int = 4
    partials: int = 4
    grain: int = 4
    rows: int = 4


class ConeScheduler:
    """Schedules one cone; `schedule` is the result so far.

    Args:
        schedule: inlined, with layouts, and no loop of the cone changed.
        cone: the root and the stages in its loops.
        reader: sums that are computed inside all loops of the one stage that reads them, and that stage.
    """

    def __init__(
        self, schedule: Schedule, cone: Cone, reader: dict[str, str], target: Target, options: Options
    ) -> None:
        self.schedule = schedule
        self.cone, self.reader, self.target, self.options = cone, reader, target, options
        lanes = min(MAX_LANES, target.lanes(widest([self.stage(n) for n in (cone.root, *cone.below)])))
        self.lanes = max(1, lanes // 2) if options.half else lanes
        self.vector = self._choose_vector()
        self.inner = dict.fromkeys((cone.root, *cone.below), "")
        self.rows_at = ""
        self.block = ""
        self.held = 0  # vectors of a row, where they stay in registers from stage to stage
        self.partials: dict[str, tuple[str, ...]] = {}

    def stage(self, name: str) -> StageState:
        return self.schedule.state.stage(name)

    @property
    def accumulators(self) -> list[str]:
        """Sums in the root's innermost loops."""
        return [n for n in self.cone.below if self.reader.get(n) == self.cone.root]

    def run(self) -> Schedule:
        """The schedule with every stage of the cone scheduled."""
        root = self.cone.root
        if self.stage(root).stage.extern is not None:  # nothing but rows is left to schedule
            self._parallel([x.name for x in self.stage(root).loops])
            return self.schedule
        along = self.vector in self.cone.rows
        sums = [s for s in map(self.stage, self.cone.below) if s.stage.reducer is not None]
        if not along and self.vector is not None and all(self._contiguous_fold(s) for s in sums):
            self.held = vectors_held(self.schedule.state, self.cone, self.reader, self.vector, self.lanes, self.target)
        for name in (root, *self.cone.below):
            s = self.stage(name)
            if s.stage.reducer is not None and not (along or (self.vector and name in (root, *self.accumulators))):
                if name == root or name in self.reader or not self._own_axes(name):
                    self._split_lanes(name)
        self._root_loops()
        for name in reversed(self.cone.below):
            self._place(name)
        for part in reversed(self.partials.get(root, ())):
            self._place_partial(part, root, self.inner[root], root)
        return self.schedule

    # -- decisions

    def _choose_vector(self) -> str | None:
        """The root's axis along which its memory is contiguous, unless sums would have to gather along it."""
        state, root = self.schedule.state, self.stage(self.cone.root)
        if root.stage.extern is not None:
            return None
        t = root.stage.outputs[-1]
        d = innermost(state.layout(t), t.shape)
        if d is None or root.stage.axes[d].name == root.stage.scan_axis:
            return None
        axis = root.stage.axes[d].name
        for name in (self.cone.root, *self.accumulators):
            s, own = self.stage(name), self._mapped(name, axis)
            sums = s.stage.reducer is not None and own is not None
            if sums and irregular(state, s, str(own)) and self._contiguous_fold(s) is not None:
                return None
        block = state.layout(t).block(d)
        self.lanes = math.gcd(self.lanes, block) if block > 1 else self.lanes
        return axis

    def _mapped(self, name: str, axis: str) -> str | None:
        """The axis of a stage that is `axis` of the root."""
        return next((own for own, x in self.cone.maps[name].items() if x == axis), None)

    def _own_axes(self, name: str) -> list[str]:
        """Axes along which one turn of the row loops needs more than one position of a stage."""
        rows, maps = self.cone.rows, self.cone.maps[name]
        return [a.name for a in self.stage(name).stage.axes if a.extent > 1 and maps.get(a.name) not in rows]

    def _own_rows(self, name: str) -> list[str]:
        """Axes of a stage that run along the row loops in step with them."""
        return [own for own, x in self.cone.maps[name].items() if x in self.cone.rows]

    def _contiguous_fold(self, s: StageState) -> str | None:
        """The reduce axis along which a sum reads contiguous memory."""
        for a in reversed(s.stage.reduce_axes):
            if a.extent >= 4 and contiguous(self.schedule.state, s, a.name):
                return a.name
        return None

    def _split_lanes(self, name: str) -> None:
        """Keep one partial result per lane, to be folded across lanes at the end."""
        s = self.stage(name)
        axis = self._contiguous_fold(s)
        if axis is None:
            return
        extent = s.stage.axis(axis).extent
        lanes = min(self.lanes, 1 << (extent.bit_length() - 1))
        simple = s.stage.reducer is not None and s.stage.reducer.name in FOLDS and len(s.stage.outputs) == 1
        vectors = min(self.options.partials, extent // lanes) if simple else 1
        before = {x.name for x in self.schedule.state.stages}
        self.schedule = self.schedule.rfactor(name, axis, lanes * vectors, "inner")
        if vectors > 1:
            self.schedule = self.schedule.rfactor(name, f"{axis}.i", lanes, "inner")
        self.partials[name] = tuple(x.name for x in self.schedule.state.stages if x.name not in before)

    # -- the root

    def _root_loops(self) -> None:
        root = self.cone.root
        s = self.stage(root)
        folds = [a.name for a in s.stage.reduce_axes]
        alone = not self.cone.below and not folds and s.stage.scan_axis is None
        loops = self._flat_loops() if alone else self._physical_loops()
        tail: list[str] = []
        if self.vector is not None:
            loops, tail = self._cut(loops, [x for x, a in loops if a == self.vector and self._extent(x) > 1][-1:],
                                    self.lanes, tail)  # fmt: skip
        lane_loop = tail[0] if tail else ""
        tile = self._transposed(loops) if alone else None
        if tile is not None:
            loops, tail = self._cut(loops, [tile[0]], tile[1], tail)
        rows = [x for x, a in loops if a in self.cone.rows]
        inner = [x for x, a in loops if a not in self.cone.rows]
        taken, abreast = self._row_block(loops), False
        if taken is not None:
            loop, self.block, size = taken
            self.schedule = self.schedule.split(root, loop, size)
            rows = [f"{x}.0" if x == loop else x for x in rows]
            inner.insert(0, f"{loop}.1")
            abreast = self._has_weights() and not self.held and self._size() * size <= MAX_WRITTEN_OUT
        unrolled: list[str] = []
        scan = s.stage.scan_axis is not None
        if self.held:
            unrolled = [x for x in inner if self._extent(x) > 1]
            inner, tail = [], [*inner, *tail]
        elif scan and self.vector and rows and not self.cone.below:
            # Vectors inside the steps: memory is walked in order, and the step before is in the nearest cache.
            step = self._step(rows, next((x for x, a in loops if a == self.vector and "." in x), ""))
            if step > 1:
                self.schedule = self.schedule.split(root, rows[-1], step)
                rows, tail = [*rows[:-1], f"{rows[-1]}.0"], [f"{rows[-1]}.1", *tail]
        elif tile is None and not folds and not self._lane_sums(root) and not (scan and self.vector):
            # Of a scan, several rows at once: each waits for its own step before.
            chosen = [x for x in (rows if scan else inner or rows) if self._extent(x) > 1][-1:]
            sums = len(self.accumulators) if self.vector in [x.split(".")[0] for x in chosen] else 0
            most = vectors_at_once(self.options.unroll, sums, self.target)
            turns = self._turns(chosen, self._scanned_rows(chosen) if scan else most)
            if turns > 1:
                self.schedule = self.schedule.split(root, chosen[0], turns)
                rows, inner = ([f"{x}.0" if x == chosen[0] else x for x in part] for part in (rows, inner))
                unrolled = [f"{chosen[0]}.1"]
                tail.insert(0, unrolled[0])
        abreast = abreast and f"{self.block}.1" in inner  # rows of a vector each are computed in turns already
        if abreast:  # what a vector of weights is loaded for
            inner.remove(f"{self.block}.1")
            tail.insert(len(tail) - 1, f"{self.block}.1")
            unrolled.append(f"{self.block}.1")
        order = [*rows, *inner, *folds, *tail]
        if not order:
            return
        self.schedule = self.schedule.reorder(root, *order)
        extents = {x: self._extent(x) for x in rows}
        shared = self._parallel(rows)
        serial = [x for x in [*rows, *inner] if x not in shared]
        innermost = next((x for x in reversed(serial) if self._extent(x) > 1), "")
        for loop in serial:
            # Sums skip what is outside of an outer loop: one test per row of a window, instead of code per edge.
            apart = loop == innermost or "." in loop or not self.accumulators
            if apart and self._has_edges(loop):
                self.schedule = self.schedule.partition(root, loop)
        if (
            abreast
            and self.stage(root).stage.axis(self.block).extent % self._extent(f"{self.block}.1")
            and shared[-1] == f"{self.block}.0"
        ):
            self.schedule = self.schedule.partition(root, "*".join(shared))
        if tile is not None:  # rows of the tile are loaded whole and turned in registers
            unrolled = tail[:1]
            if shared[-1:] == [f"{tile[0]}.0"] and all(extents[x] == 1 for x in shared[:-1]):
                # Only where no guard says that some of the rows may be missing.
                self.schedule = self.schedule.partition(root, "*".join(shared))
        for loop in unrolled:
            self.schedule = self.schedule.unroll(root, loop)
        if root in self.partials:
            self.schedule = folded_lanes(self.schedule, root)
        elif lane_loop and self._extent(lane_loop) > 1:
            self.schedule = self.schedule.vectorize(root, lane_loop)
        self.rows_at = next((x for x in reversed(serial) if x in rows), "*".join(shared))
        self.inner[root] = serial[-1] if serial else "*".join(shared)

    def _step(self, rows: list[str], vectors: str) -> int:
        """How many vectors of a step of a scan come one after the other; `vectors` is the loop over all of them."""
        if not vectors or rows[-1] != vectors:
            return 1
        others = math.prod(self._extent(x) for x in rows[:-1])
        extent, each = self._extent(vectors), self.lanes * self.stage(self.cone.root).stage.outputs[0].dtype.bytes
        most = min(extent // -(-self.target.num_threads // others), self.target.l1_bytes // HELD // each)
        return max((n for n in range(1, most + 1) if extent % n == 0), default=1)

    def _row_block(self, loops: list[tuple[str, str]]) -> tuple[str, str, int] | None:
        """(loop, axis, turns) of rows that share one turn of the row loops; None where no fold would gain by it."""
        folding = [n for n in self.cone.below if n in self.partials and (n not in self.reader or self._has_weights())]
        rows = [(x, a) for x, a in loops if a in self.cone.rows and self._extent(x) > 1]
        if not folding or not rows or rows[-1][0] != rows[-1][1]:
            return None
        loop, axis = rows[-1]
        held = 0  # bytes of a row of what is kept in memory
        for name in self.cone.below:
            maps, s = self.cone.maps[name], self.stage(name)
            if axis not in maps.values():
                return None
            own = math.prod(a.extent for a in s.stage.axes if maps.get(a.name) not in self.cone.rows)
            held += own * sum(t.dtype.bytes for t in s.stage.outputs) if own > 1 else 0
        enough = self._extent(loop) // self.target.num_threads if len(rows) == 1 else self._extent(loop)
        room = self.target.l1_bytes // HELD // max(held, 1)
        if self._has_weights():  # rows are read again and again: by the sums, and with the weights
            room = min(room, self.target.l1_bytes // 2 // self._row_bytes())
        if self.held:
            room = rows_held(self.held, self.target)
        most = min(self.options.rows, room, enough)
        divisor = max((n for n in range(1, most + 1) if self._extent(loop) % n == 0), default=1)
        if divisor == 1 and (len(rows) > 1 or self._has_weights()) and not self.held:
            divisor = most  # the last turn is code of its own
        return (loop, axis, divisor) if divisor > 1 else None

    def _has_weights(self) -> bool:
        """Whether the root reads something that is the same in all rows, vector by vector; not if rows share lines."""
        s = self.stage(self.cone.root)
        if self._lines_apart(s.reads(), [a.name for a in s.stage.axes if a.name in self.cone.rows]) == 1:
            return False  # rows would push each other out
        found = [{x.name for i in r.indices for x in walk(i) if isinstance(x, Var)} for r in s.reads()]
        return any(self.vector in used and not used & self.cone.rows for used in found)

    def _row_bytes(self) -> int:
        """Of what one turn of the row loops makes."""
        s = self.stage(self.cone.root)
        own = math.prod(a.extent for a in s.stage.axes if a.name not in self.cone.rows)
        return own * sum(t.dtype.bytes for t in s.stage.outputs)

    def _extent(self, loop: str) -> int:
        return self.stage(self.cone.root).loop(loop).extent

    def _cut(
        self, loops: list[tuple[str, str]], chosen: list[str], size: int, tail: list[str]
    ) -> tuple[list[tuple[str, str]], list[str]]:
        """Move `size` turns of a loop into the tail; the rest of it stays where it is."""
        if not chosen:
            return loops, tail
        loop = chosen[0]
        extent = self._extent(loop)
        if extent <= size and not self.cone.below:
            return [(x, a) for x, a in loops if x != loop], [loop, *tail]
        # Stages below need a loop around the vector, if only of one turn.
        self.schedule = self.schedule.split(self.cone.root, loop, min(size, extent))
        return [(f"{x}.0" if x == loop else x, a) for x, a in loops], [f"{loop}.1", *tail]

    def _physical_loops(self) -> list[tuple[str, str]]:
        """(loop, axis) in the order of memory, blocked dimensions split."""
        s = self.stage(self.cone.root)
        t = s.stage.outputs[-1]
        form = self.schedule.state.layout(t)
        names = [a.name for a in s.stage.axes]
        loops: list[tuple[str, str]] = []
        for d, block in form.order:
            size = form.block(d)
            if size > 1 and not block:
                self.schedule = self.schedule.split(s.name, names[d], size)
            if size > 1 or not block:
                loops.append((f"{names[d]}.{1 if block else 0}" if size > 1 else names[d], names[d]))
        return loops

    def _flat_loops(self) -> list[tuple[str, str]]:
        """Physical loops; where rows do not fill vectors, as many as lie one behind the other in memory are fused."""
        state, s = self.schedule.state, self.stage(self.cone.root)
        t = s.stage.outputs[0]
        axes = list(s.stage.axes)
        plain = state.layout(t) == Layout.row_major(len(t.shape)) and not uses_positions(s)
        count, extent, inner = 0, 1, ("", 1)
        for n, a in enumerate(reversed(axes) if plain else ()):
            if extent % (self.lanes * self.options.unroll) == 0:
                break
            if a.extent > 1:
                steps = [(stride(state, s, r, a.name), stride(state, s, r, inner[0])) for r in s.reads()]
                apart = inner[0] and any(x is None or y is None or x != y * inner[1] for x, y in steps)
                if apart and (extent >= self.lanes or self.lanes % extent):
                    break  # else lanes take turns among a few rows, which are loaded whole and interleaved
                inner = (a.name, a.extent)
            count, extent = n + 1, extent * a.extent
        if count < 2:
            return self._physical_loops()
        fused = axes[-count].name
        for a in axes[len(axes) - count + 1 :]:
            self.schedule = self.schedule.fuse(s.name, fused, a.name)
            fused = f"{fused}*{a.name}"
        self.vector = fused if extent > 1 else None
        self.cone = replace(self.cone, rows=self.cone.rows | {fused})
        return [(a.name, a.name) for a in axes[:-count]] + [(fused, fused)]

    def _transposed(self, loops: list[tuple[str, str]]) -> tuple[str, int] | None:
        """(loop, turns) of another axis along which something is read contiguously, so that whole lines get used."""
        state, s = self.schedule.state, self.stage(self.cone.root)
        names = [a.name for a in s.stage.axes if a.extent > 1]
        fused = (self.vector or "").split("*")
        along = next((x for x in reversed(fused) if x in names), None)
        if along is None:
            return None
        for r in s.reads():
            if stride(state, s, r, along) not in (0, 1):
                for name in names:
                    found = [x for x, a in loops if a == name and self._extent(x) > 1]
                    if name not in fused and found and stride(state, s, r, name) == 1:
                        turns = max(2, LINE // r.tensor.dtype.bytes)
                        return (found[-1], turns) if turns * self._size() <= 4 * MAX_WRITTEN_OUT else None
        return None

    def _size(self) -> int:
        """Nodes of the root's body, those of indices included."""
        return sum(1 for body in self.stage(self.cone.root).stage.body for _ in walk(body))

    def _scanned_rows(self, chosen: list[str]) -> int:
        """How many rows of a scan at once: their steps overlap, as long as their lines do not push each other out."""
        reads = self.stage(self.cone.root).reads()
        return self.options.unroll * min(SCANNED, self._lines_apart(reads, chosen))

    def _lines_apart(self, reads: Iterable[Read], loops: list[str]) -> int:
        """How many neighbours along any of these loops there are before two share lines of the first-level cache."""
        state, s = self.schedule.state, self.stage(self.cone.root)
        steps = [(stride(state, s, r, x) or 0) * r.tensor.dtype.bytes for r in reads for x in loops]
        return min((PAGE // math.gcd(x, PAGE) for x in steps if x), default=1)

    def _turns(self, chosen: list[str], most: int) -> int:
        """How many turns of a loop to write out: a divisor when one is near what is asked for."""
        if not chosen:
            return 1
        extent = self._extent(chosen[0])
        if tabled(self.stage(self.cone.root), str(self.vector)) and self._size() * extent <= MAX_TABLED:
            return extent  # places that are known are loaded as vectors and shuffled, not gathered
        while most > 1 and self._size() * most > MAX_WRITTEN_OUT:
            most //= 2
        divisor = max(u for u in range(1, most + 1) if extent % u == 0)
        return divisor if divisor * 2 > most or extent < 2 * most else most

    def _parallel(self, rows: list[str]) -> list[str]:
        """Fuse row loops until every thread gets enough turns, and share them; the loops that were fused."""
        if not rows:
            return []
        root, threads = self.cone.root, self.target.num_threads
        shared, turns = [rows[0]], self._extent(rows[0])
        for loop in rows[1:]:
            # The innermost row loop stays apart if it can, and so do loops whose edges get code of their own.
            apart = loop == rows[-1] or self._has_edges(loop)
            needed = threads * (1 if apart else self.options.grain)
            if turns >= needed:
                break
            turns *= self._extent(loop)
            self.schedule = self.schedule.fuse(root, "*".join(shared), loop)
            shared.append(loop)
        self.schedule = self.schedule.parallel(root, "*".join(shared))
        return shared

    def _has_edges(self, loop: str) -> bool:
        """Whether guards or predicated reads may depend on a loop of the root."""
        axis = loop.split(".")[0]
        if loop != axis:
            return True
        for name in (self.cone.root, *self.accumulators):
            own = self._mapped(name, axis)
            for body in self.stage(name).stage.body:
                for e in walk(body):
                    condition = e.when if isinstance(e, Read) else e.condition if isinstance(e, Select) else None
                    if condition is not None and any(isinstance(x, Var) and x.name == own for x in walk(condition)):
                        return True
        return False

    # -- stages below

    def _place(self, name: str) -> None:
        """Compute a stage inside the root, or a sum inside the stage that reads it, and give it loops."""
        host = self.reader.get(name, self.cone.root)
        deep = name in self.reader
        at = self.inner[host] if deep else self.rows_at
        row = next((own for own, x in self.cone.maps[name].items() if x == self.block), None) if not deep else None
        small = deep or bool(self.held) or (row is None and not self._own_axes(name))
        self.schedule = self.schedule.compute_at(name, host, at, REGISTER if small else LOCAL)
        if deep and host != self.cone.root:
            along = self._host_vector(name, host)
        else:
            inside = self.vector is not None and (deep or self.vector in self.cone.rows)
            along = self._mapped(name, str(self.vector)) if inside else None
        s = self.stage(name)
        if name in self.partials:
            self.schedule = folded_lanes(self.schedule, name)
            for part in reversed(self.partials[name]):
                self._place_partial(part, *((name, row) if row else (host, at)), name)
        elif s.stage.reducer is not None:
            self.schedule = sum_in_registers(self.schedule, name, along, self.lanes)
        elif s.stage.scan_axis is not None:
            self.schedule = scanned(self.schedule, name, along, self.lanes)
        elif self._lane_sums(name):  # one element at a time: the lanes are those of the sums in it
            self.inner[name] = s.loops[-1].name
        elif self.held:
            self.schedule = held_elements(self.schedule, name, self.lanes, self._own_rows(name))
        else:
            self.schedule, self.inner[name] = elements(self.schedule, name, along, self.lanes, self.options.unroll)
        if self.held:
            for part in (name, *self.partials.get(name, ())):
                self.schedule = written_out(self.schedule, part)

    def _lane_sums(self, name: str) -> bool:
        """Whether a stage is, or has inside its loops, a sum that is kept lane by lane."""
        return any(n == name or self.reader.get(n) == name for n in self.partials)

    def _host_vector(self, name: str, host: str) -> str | None:
        """The axis along which the stage that reads a sum is vectorized."""
        for loop, own in zip(self.stage(host).stage.axes, self.stage(name).stage.axes, strict=True):
            marked = [x for x in self.stage(host).loops if x.mark == "vectorize"]
            if marked and marked[0].name.split(".")[0] == loop.name:
                return own.name
        return None

    def _place_partial(self, part: str, host: str, at: str, of: str) -> None:
        second = len(self.partials[of]) > 1 and part == self.partials[of][-1]
        if at:
            self.schedule = self.schedule.compute_at(part, host, at, REGISTER)
        if second:
            self.schedule = folded_vectors(self.schedule, part)
        else:
            self.schedule = partial_results(self.schedule, part, self.lanes)
