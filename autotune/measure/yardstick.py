"""Yardsticks: the kernel of a task with which all its trials are timed in turn.

A host that gives a virtual machine's core to others makes all kernels slower for seconds to minutes, which no gauge
sees. A trial in such a time would seem to be of a slow kernel. What one and the same kernel takes meanwhile tells how
slow the time is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from autotune.measure.timing import kernel_seconds
from autotune.measure.types import BuildResult

_FASTER = 1.5  # a kernel that is so many times as fast is the next yardstick: a slow one takes long, at every trial
_KEPT = 1 << 10  # rounds that tell what is calm: those of hundreds of trials


@dataclass(frozen=True, slots=True)
class Yardstick:
    """A kernel that was found right, and the seconds of its quiet rounds, to which every trial adds."""

    build: BuildResult
    seconds: deque[float]

    @staticmethod
    def of(build: BuildResult, seconds: float, before: Yardstick | None = None) -> Yardstick:
        """A kernel whose trial gave so many seconds, by the yardstick before it: it knows as well what is calm."""
        return Yardstick(build, deque([seconds] * (1 if before is None else len(before.seconds)), _KEPT))

    @property
    def calm(self) -> float:
        """Seconds that it takes in calm times, as far as is known by now."""
        return kernel_seconds(self.seconds)

    def succeeded_by(self, seconds: float) -> bool:
        """Whether a kernel that takes so long had better be the yardstick."""
        return seconds * _FASTER < self.calm
