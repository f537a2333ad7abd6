"""Editor: writes a schedule step by step and hands out its loops, so that nobody builds their names.

Exo's cursors (Ikarashi et al., PLDI'22) are the model: a step returns handles of the loops that it made, and a
handle is good until the loop itself is split or fused. Steps that would say nothing (an unrolled loop of one turn) are
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune.schedule.schedule import Schedule
from autotune.schedule.state import LOCAL, SERIAL, StageState
from autotune.tensor.layout import Layout


class Editor:
    """A schedule being written; `schedule` is what it has come to. Every step may raise ScheduleError."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def stage(self, name: str) -> StageState:
        return self.schedule.state.stage(name)

    def extent(self, stage: str, loop: str) -> int:
        """Turns of a loop."""
        return self.stage(stage).loop(loop).extent

    def split(self, stage: str, loop: str, factor: int) -> tuple[str, str]:
        """(outer, inner) loop, the inner one of `factor` turns."""
        at = self.stage(stage).position(loop)
        self.schedule = self.schedule.split(stage, loop, factor)
        outer, inner = self.stage(stage).loops[at : at + 2]
        return outer.name, inner.name

    def fuse(self, stage: str, loops: Sequence[str]) -> str:
        """One loop of neighbours, the outermost first."""
        fused, *rest = loops
        for loop in rest:
            at = self.stage(stage).position(fused)
            self.schedule = self.schedule.fuse(stage, fused, loop)
            fused = self.stage(stage).loops[at].name
        return fused

    def order(self, stage: str, loops: Iterable[str]) -> None:
        """Put loops in the order given, in the places that they hold together."""
        self.schedule = self.schedule.reorder(stage, *loops)

    def unroll(self, stage: str, loops: Iterable[str]) -> None:
        """Write out those that have more than one turn."""
        for loop in loops:
            if self.extent(stage, loop) > 1:
                self.schedule = self.schedule.unroll(stage, loop)

    def vectorize(self, stage: str, loop: str) -> None:
        """One lane for each turn, if there are several."""
        if self.extent(stage, loop) > 1:
            self.schedule = self.schedule.vectorize(stage, loop)

    def parallel(self, stage: str, loop: str) -> None:
        self.schedule = self.schedule.parallel(stage, loop)

    def partition(self, stage: str, loops: Iterable[str]) -> None:
        """Separate code for the turns that need guards, for loops that have others."""
        for loop in loops:
            if self.extent(stage, loop) > 1 and self.stage(stage).loop(loop).mark in (SERIAL, "parallel"):
                self.schedule = self.schedule.partition(stage, loop)

    def compute_at(self, stage: str, consumer: str, loop: str, scope: str = LOCAL) -> None:
        self.schedule = self.schedule.compute_at(stage, consumer, loop, scope)

    def replicate(self, stage: str) -> None:
        self.schedule = self.schedule.replicate(stage)

    def layout(self, tensor: str, form: Layout) -> None:
        self.schedule = self.schedule.layout(tensor, form)

    def pad(self, stage: str, axis: str) -> None:
        self.schedule = self.schedule.pad(stage, axis)

    def tensorize(self, stage: str, loop: str, instruction: str) -> None:
        self.schedule = self.schedule.tensorize(stage, loop, instruction)

    def prefetch(self, stage: str, tensor: str, loop: str, distance: int, level: int = 1) -> None:
        self.schedule = self.schedule.prefetch(stage, tensor, loop, distance, level)

    def stream(self, stage: str, tensor: str, loop: str, near: int) -> None:
        self.schedule = self.schedule.stream(stage, tensor, loop, near=near)

    def rfactor(self, stage: str, axis: str, factor: int) -> str:
        """The new stage of partial sums over `factor` elements of an axis each, which `stage` adds up from now on."""
        before = {s.name for s in self.schedule.state.stages}
        self.schedule = self.schedule.rfactor(stage, axis, factor)
        return next(s.name for s in self.schedule.state.stages if s.name not in before)

    def cache_read(self, tensor: str, consumer: str, padded: bool = False, stored: str = "") -> str:
        """The copy of `tensor` that `consumer` reads from now on; `stored`: of other elements, see the primitive."""
        before = {s.name for s in self.schedule.state.stages}
        self.schedule = self.schedule.cache_read(tensor, consumer, padded, stored=stored)
        return next(s.name for s in self.schedule.state.stages if s.name not in before)

    def loops(self, stage: str) -> list[str]:
        """All loops of a stage, outermost first."""
        return [loop.name for loop in self.stage(stage).loops]
