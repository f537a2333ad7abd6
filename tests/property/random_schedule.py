"""Random legal schedules: whatever the primitives do not refuse."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from autotune.errors import ScheduleError
from autotune.schedule import Schedule
from autotune.schedule.state import StageState
from autotune.tensor import ComputeDef, DType, Layout

MAX_CODE = 1500  # scalar or vector statements after unrolling
MAX_WORK = 400_000  # innermost iterations


def random_schedule(rng: random.Random, definition: ComputeDef) -> Schedule:
    """A schedule of `definition`; steps that are refused are left out."""
    return _Author(rng, Schedule(definition)).write()


class _Author:
    def __init__(self, rng: random.Random, schedule: Schedule) -> None:
        self.rng, self.s = rng, schedule

    def write(self) -> Schedule:
        rng = self.rng
        daring = rng.random()
        for _ in range(rng.choice((0, 0, 1, 2, 3, 5))):
            rng.choice(
                (self._inline, self._inline, self._cache_write, self._cache_read, self._rfactor, self._precompute)
            )()
        for _ in range(rng.choice((0, 0, 1, 2, 4))):
            self._layout()
        for s in reversed(self.s.state.stages):
            if daring < 0.85 and rng.random() < 0.7:
                self._place(s.name)
            for _ in range(rng.choice((0, 1, 1, 2, 3, 4))):
                rng.choice((self._split, self._split, self._reorder, self._reorder, self._fuse))(s.name)
        for _ in range(rng.choice((0, 0, 1, 2))):  # out of the usual order
            rng.choice(
                (self._inline, self._cache_write, self._cache_read, self._rfactor, self._layout,
                 lambda: self._place(self._any().name), lambda: self._split(self._any().name),
                 lambda: self._reorder(self._any().name), lambda: self._mark(self._any().name))
            )()  # fmt: skip
        for s in self.s.state.stages:
            if rng.random() < 0.8:
                self._tensorize(s)
            for _ in range(rng.choice((0, 1, 2, 3))):
                self._mark(s.name)
            if rng.random() < 0.6:
                self._tail_vector(s.name)
        return self.s

    def _try(self, step: Callable[[Schedule], Schedule]) -> None:
        try:
            new = step(self.s)
        except ScheduleError:
            return
        if _code(new) <= MAX_CODE and _work(new) <= max(MAX_WORK, 2 * _work(Schedule(new.compute))):
            self.s = new

    def _any(self) -> StageState:
        return self.rng.choice(self.s.state.stages)

    def _loop(self, stage: str) -> str:
        try:
            loops = self.s.state.stage(stage).loops
        except ScheduleError:
            return "gone"
        return self.rng.choice(loops).name if loops else "none"

    def _inline(self) -> None:
        name = self._any().name
        self._try(lambda s: s.inline(name))

    def _precompute(self) -> None:
        name = self._any().name
        self._try(lambda s: s.precompute(name))

    def _cache_write(self) -> None:
        name = self._any().name
        self._try(lambda s: s.cache_write(name))

    def _cache_read(self) -> None:
        consumer = self._any()
        reads = sorted({r.tensor.name for r in consumer.reads()})
        if reads:
            tensor = self.rng.choice(reads)
            self._try(lambda s: s.cache_read(tensor, consumer.name))

    def _rfactor(self) -> None:
        stages = [s for s in self.s.state.stages if s.stage.reduce_axes]
        if stages:
            s = self.rng.choice(stages)
            axis = self.rng.choice(s.stage.reduce_axes)
            factor = self.rng.choice((1, 2, 3, 4, 8, 16, axis.extent))
            keep = self.rng.choice(("outer", "inner"))
            self._try(lambda x: x.rfactor(s.name, axis.name, factor, keep))

    def _layout(self) -> None:
        rng = self.rng
        t = rng.choice(tuple(self.s.state.tensors()))
        rank = len(t.shape)
        if not rank:
            return
        dims = rng.sample(range(rank), rng.choice((0, 1, 1, min(2, rank))))
        outer = rng.sample(range(rank), rank) if rng.random() < 0.5 else list(range(rank))
        form = Layout.blocked(rank, [(d, rng.choice((1, 2, 3, 4, 8, 16))) for d in dims], outer)
        if rng.random() < 0.2:
            form = Layout(tuple(rng.sample(form.order, len(form.order))), form.halo)
        if rng.random() < 0.5:
            widths = (0, 0, 1, 2, 3)
            halo = [(0, 0) if d in dims else (rng.choice(widths), rng.choice(widths)) for d in range(rank)]
            self._try(lambda s: s.layout(t.name, form.with_halo(halo)))
        else:
            self._try(lambda s: s.layout(t.name, form))

    def _place(self, stage: str) -> None:
        state = self.s.state
        try:
            s = state.stage(stage)
        except ScheduleError:
            return
        hosts = state.consumers(s)
        while hosts and self.rng.random() < 0.3 and hosts[-1].at is not None:
            hosts.append(state.stage(hosts[-1].at[0]))
        if hosts:
            host = self.rng.choice(hosts)
            loop, scope = self._loop(host.name), self.rng.choice(("local", "local", "register"))
            self._try(lambda x: x.compute_at(stage, host.name, loop, scope))

    def _split(self, stage: str) -> None:
        loop, factor = self._loop(stage), self.rng.choice((1, 2, 3, 4, 5, 8, 16))
        self._try(lambda s: s.split(stage, loop, factor))

    def _reorder(self, stage: str) -> None:
        try:
            loops = [x.name for x in self.s.state.stage(stage).loops]
        except ScheduleError:
            return
        some = self.rng.sample(loops, self.rng.randint(0, len(loops)))
        self._try(lambda s: s.reorder(stage, *some))

    def _fuse(self, stage: str) -> None:
        try:
            loops = [x.name for x in self.s.state.stage(stage).loops]
        except ScheduleError:
            return
        if len(loops) > 1:
            n = self.rng.randrange(len(loops) - 1)
            self._try(lambda s: s.fuse(stage, loops[n], loops[n + 1]))

    def _mark(self, stage: str) -> None:
        rng, loop = self.rng, self._loop(stage)
        kind = rng.choice(("vectorize", "unroll", "unroll", "parallel", "partition", "pad", "prefetch", "alternate"))
        if kind == "pad":
            try:
                axes = self.s.state.stage(stage).stage.axes
            except ScheduleError:
                return
            axis = rng.choice(axes).name if axes else "none"
            self._try(lambda s: s.pad(stage, axis))
        elif kind == "prefetch":
            try:
                reads = sorted({r.tensor.name for r in self.s.state.stage(stage).reads()})
            except ScheduleError:
                return
            if reads and rng.random() < 0.4:
                tensor, distance = rng.choice(reads), rng.choice((1, 2, 8, 1000))
                self._try(lambda s: s.prefetch(stage, tensor, loop, distance))
                if rng.random() < 0.5:
                    self._try(lambda s: s.stream(stage, tensor, loop))
        else:
            outermost = kind == "parallel" and rng.random() < 0.8
            try:
                s = self.s.state.stage(stage)
                first = s.loops[0 if s.turn is None else 1].name if outermost else loop
            except (ScheduleError, IndexError):
                return
            self._try(lambda s: s.then(kind, stage, first))

    def _tensorize(self, s: StageState) -> None:
        """Lanes, and a short reduce loop inside them; mostly with the layout that this needs."""
        sources = {r.dtype for r in s.reads()}
        if not s.stage.reduce_axes or not sources & {DType.i8, DType.bf16} or s.relations or not s.stage.axes:
            return
        name, extent = ("vdpbf16ps", 2) if DType.bf16 in sources else ("vpdpbusd", 4)
        folded, column, lanes = s.loops[-1].name, s.stage.axes[-1].name, self.rng.choice((4, 8, 16))
        if "in1" in {r.tensor.name for r in s.reads()} and self.rng.random() < 0.8:
            form = Layout.blocked(2, [(1, lanes), (0, extent)])
            self._try(lambda x: x.layout("in1", form))
        self._try(lambda x: x.split(s.name, folded, extent))
        self._try(lambda x: x.split(s.name, column, lanes).vectorize(s.name, f"{column}.1"))
        inner = [x.name for x in self.s.state.stage(s.name).loops if x.name != f"{folded}.1"]
        self._try(lambda x: x.reorder(s.name, *inner, f"{folded}.1").tensorize(s.name, f"{folded}.1", name))

    def _tail_vector(self, stage: str) -> None:
        """What templates do: split the innermost loop by a vector width and vectorize it."""
        try:
            loops = self.s.state.stage(stage).loops
        except ScheduleError:
            return
        if loops:
            last, lanes = loops[-1].name, self.rng.choice((2, 4, 8, 16, 16, 3))
            before = self.s
            self._try(lambda s: s.split(stage, last, lanes))
            if self.s is not before:
                self._try(lambda s: s.vectorize(stage, f"{last}.1"))


def _code(s: Schedule) -> int:
    """Roughly how many statements unrolling makes."""
    state = s.state
    total = 0
    for stage in state.stages:
        size, here, limit = 1, stage, len(stage.loops)
        while True:
            for loop in here.loops[:limit]:
                size *= {"unroll": loop.extent, "vectorize": max(loop.extent // 2, 1)}.get(loop.mark, 1)
            if here.at is None:
                break
            host = state.stage(here.at[0])
            limit, here = host.position(here.at[1]) + 1, host
        total += size * (1 + sum(1 for _ in stage.reads()))
    return total


def _work(s: Schedule) -> int:
    """Innermost iterations of all stages, each times those of the loops around it."""
    state = s.state
    total = 0
    for stage in state.stages:
        size = math.prod(x.extent for x in stage.loops)
        here = stage
        while here.at is not None:
            host = state.stage(here.at[0])
            size *= math.prod(x.extent for x in host.loops[: host.position(here.at[1]) + 1])
            here = host
        total += size
    return total
