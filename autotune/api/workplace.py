"""Where a tuning run builds and measures: this machine, or another one like it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from autotune.engines.race import Racer, RacerLike
from autotune.measure.peaks import Peak
from autotune.measure.pipeline import Pipeline, RunnerLike, pipeline_of
from autotune.measure.runner import Runner
from autotune.target import Target


class PeakRunner(RunnerLike, Protocol):
    """A runner that knows how fast its machine can be."""

    def peak(self, patience: float) -> Peak:
        """fp32 FMA throughput of the target's threads; a quiet moment is waited for, so many seconds at most."""


class Workplace(Protocol):
    """Builders, runners and racers for one target; each lives as long as its context."""

    @property
    def target(self) -> Target:
        """What code is made for."""

    def runner(self) -> AbstractContextManager[PeakRunner]:
        """Whoever times kernels."""

    def pipeline(self, runner: PeakRunner, weight_bytes: int) -> AbstractContextManager[Pipeline]:
        """Builders, and the way from them to the runner; see `RunOptions` for the weights."""

    def racer(self) -> AbstractContextManager[RacerLike]:
        """Whoever times programs."""


class ThisMachine:
    """Worker processes of this machine's own."""

    def __init__(self, target: Target, imports: Sequence[str] = ()) -> None:
        """
        Args:
            imports: modules or Python files with the user's own operators and templates.

        Raises:
            TargetError: this machine cannot run code for `target`.
        """
        target.require_host()
        self.target = target
        self._imports = tuple(imports)

    def runner(self) -> AbstractContextManager[PeakRunner]:
        return Runner(self.target, imports=self._imports)

    def pipeline(self, runner: PeakRunner, weight_bytes: int) -> AbstractContextManager[Pipeline]:
        return pipeline_of(runner, self.target, weight_bytes=weight_bytes, imports=self._imports)

    def racer(self) -> AbstractContextManager[RacerLike]:
        return Racer(self.target)
