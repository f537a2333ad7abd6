"""Candidates in, measurements out: builds run ahead in their processes while kernels are timed one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Protocol

from autotune.measure.failure import Failure
from autotune.measure.local_runner import RunOptions
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult


class BuilderLike(Protocol):
    """What every builder can do."""

    def submit(self, candidate: MeasureInput) -> Future[BuildResult | Failure]:
        """Queue a candidate; at once back."""


class RunnerLike(Protocol):
    """What every runner can do."""

    def run(self, candidate: MeasureInput, build: BuildResult, options: RunOptions) -> MeasureResult | Failure:
        """Verify and time one kernel."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One trial: the candidate, its build (None when that failed), and how it ended."""

    candidate: MeasureInput
    build: BuildResult | None
    result: MeasureResult | Failure


class Pipeline:
    """Measures batches of candidates.

    Kernels of equal code are timed once, and the best time of each workload so far tells the runner when to give up on
    a slow one.
    """

    def __init__(self, builder: BuilderLike, runner: RunnerLike, *, take_turns: bool, weight_bytes: int = 0) -> None:
        """
        Args:
            builder: compiles.
            runner: verifies and times.
            take_turns: build a whole batch before its first kernel is timed: needed when builders and the kernel's
                threads are more than the cores, or they would disturb the times.
            weight_bytes: size of the model's weights, 0 for a single operator; see `RunOptions`.
        """
        self._builder = builder
        self._runner = runner
        self._take_turns = take_turns
        self._options = RunOptions(weight_bytes=weight_bytes)
        self._best: dict[str, float] = {}
        self._known: dict[tuple[str, str], MeasureResult | Failure] = {}

    def measure(self, candidates: Sequence[MeasureInput]) -> Iterator[Measurement]:
        """Yield one measurement per candidate, in order. Closing the iterator drops the builds not yet begun."""
        builds = [self._builder.submit(candidate) for candidate in candidates]
        try:
            if self._take_turns:
                wait(builds)
            for candidate, future in zip(candidates, builds, strict=True):
                yield self._measure(candidate, future.result())
        finally:
            for future in builds:
                future.cancel()

    def incumbent(self, seconds: float, candidate: MeasureInput) -> None:
        """Tell of an earlier time of the candidate's workload, from the database."""
        key = candidate.workload.key
        self._best[key] = min(seconds, self._best.get(key, seconds))

    def _measure(self, candidate: MeasureInput, build: BuildResult | Failure) -> Measurement:
        if isinstance(build, Failure):
            return Measurement(candidate, None, build)
        key = candidate.workload.key
        code = (key, build.kernel.ir_hash)
        if code not in self._known:
            options = replace(self._options, incumbent=self._best.get(key))
            self._known[code] = self._runner.run(candidate, build, options)
        result = self._known[code]
        if isinstance(result, MeasureResult):
            self.incumbent(result.seconds, candidate)
        return Measurement(candidate, build, result)
