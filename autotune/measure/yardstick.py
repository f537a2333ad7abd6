"""Yardsticks: the kernel of a task with which all its trials are timed in turn.

A host that gives a virtual machine's core to others makes all kernels slower for seconds to minutes, which no gauge
sees. A trial in such a time would seem to be of a slow kernel. What one and the same kernel takes meanwhile tells how
slow the time is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from autotune.measure.rounds import GaugeLike, Taken, is_calm
from autotune.measure.timing import Timing, kernel_seconds
from autotune.measure.types import BuildResult

_FASTER = 1.5  # a kernel that is so many times as fast is the next yardstick: a slow one takes long, at every trial
_KEPT = 1 << 10  # rounds that tell what is calm: those of hundreds of trials


@dataclass(frozen=True, slots=True)
class Yardstick:
    """A kernel that was found right, and its quiet rounds, to which every trial adds."""

    build: BuildResult
    rounds: deque[Taken]

    @staticmethod
    def of(build: BuildResult, timing: Timing, before: Yardstick | None = None) -> Yardstick:
        """A kernel by its trial; in turn with the yardstick before it, it knows as well what is calm."""
        known = [Taken(0.0, timing.loads_a_cycle)] if before is None else before.rounds
        return Yardstick(build, deque([replace(one, seconds=timing.seconds) for one in known], _KEPT))

    def calm(self, gauge: GaugeLike) -> float:
        """Seconds that it takes in calm times, as far as is known by now: beside a neighbour who comes and goes most
        rounds may be slow."""
        calm = [one.seconds for one in self.rounds if is_calm(one.loads_a_cycle, gauge)]
        return kernel_seconds(calm or [one.seconds for one in self.rounds])

    def succeeded_by(self, seconds: float, gauge: GaugeLike) -> bool:
        """Whether a kernel that takes so long had better be the yardstick."""
        return seconds * _FASTER < self.calm(gauge)
