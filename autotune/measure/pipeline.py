"""Candidates in, measurements out: builds run ahead in their processes while kernels are timed one by one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from autotune import machine
from autotune.measure.builder import Builder
from autotune.measure.failure import Failure
from autotune.measure.local_runner import RunOptions
from autotune.measure.runner import Runner
from autotune.measure.spill_filter import SpillFilter
from autotune.measure.timing import TimingPolicy
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.target import Target

_MOST_BUILDERS = 4  # one runner cannot time kernels faster than a few processes build them


class BuilderLike(Protocol):
    """What every builder can do."""

    def submit(self, candidate: MeasureInput) -> Future[BuildResult | Failure]:
        """Queue a candidate; at once back."""


class RunnerLike(Protocol):
    """What every runner can do."""

    def run(self, candidate: MeasureInput, build: BuildResult, options: RunOptions) -> MeasureResult | Failure:
        """Verify and time one kernel."""

    def compare(
        self, candidate: MeasureInput, builds: Sequence[BuildResult], rounds: int, options: RunOptions
    ) -> list[MeasureResult | Failure]:
        """Verify kernels of one workload, then time them in turn."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One trial: the candidate, its build (None when that failed), and how it ended.

    `seconds`: what it cost, its build and its turn in the runner; of a build that failed, what was waited for it.
    """

    candidate: MeasureInput
    build: BuildResult | None
    result: MeasureResult | Failure
    seconds: float = 0.0


class Pipeline:
    """Measures candidates as they come.

    Kernels of equal code are timed once, unless that was disturbed. The best time of each workload so far tells the
    runner when to give up on a slow one.
    """

    def __init__(
        self,
        builder: BuilderLike,
        runner: RunnerLike,
        *,
        ahead: int,
        take_turns: bool,
        weight_bytes: int = 0,
        spill_filter: SpillFilter | None = None,
    ) -> None:
        """
        Args:
            builder: compiles.
            runner: verifies and times.
            ahead: how many candidates are built before their turn to be timed.
            take_turns: time nothing while something is built; needed when builders and the kernel's threads are
                more than the cores.
            weight_bytes: size of the model's weights, 0 for a single operator; see `RunOptions`.
            spill_filter: what need not be run; None runs all that builds.
        """
        self._builder = builder
        self._runner = runner
        self._ahead = ahead
        self._take_turns = take_turns
        self._spill_filter = spill_filter
        self._options = RunOptions(weight_bytes=weight_bytes)
        self._best: dict[str, float] = {}
        self._known: dict[tuple[str, str], MeasureResult | Failure] = {}

    def measure(self, candidates: Iterable[MeasureInput]) -> Iterator[Measurement]:
        """Yield one measurement per candidate, in order.

        Candidates are drawn `ahead` at most before they are timed, so an iterable that looks at the results so far
        works well. Closing the iterator drops the builds not yet begun.
        """
        source = iter(candidates)
        queue: deque[tuple[MeasureInput, Future[BuildResult | Failure]]] = deque()
        try:
            while True:
                if not (self._take_turns and queue):
                    for candidate in islice(source, self._ahead - len(queue)):
                        queue.append((candidate, self._builder.submit(candidate)))
                    if self._take_turns:
                        wait([future for _, future in queue])
                if not queue:
                    return
                candidate, future = queue.popleft()
                start = time.monotonic()
                build = future.result()
                if isinstance(build, BuildResult):
                    start = time.monotonic() - build.seconds  # it was built while others were timed
                yield replace(self._measure(candidate, build), seconds=time.monotonic() - start)
        finally:
            for _, future in queue:
                future.cancel()

    def build(self, candidates: Sequence[MeasureInput]) -> list[BuildResult | Failure]:
        """Only build, all at once: for kernels to be compared, or to see whether old records still fit."""
        futures = [self._builder.submit(candidate) for candidate in candidates]
        return [future.result() for future in futures]

    def compare(
        self, candidate: MeasureInput, builds: Sequence[BuildResult], rounds: int = 20
    ) -> list[MeasureResult | Failure]:
        """Time kernels of the candidate's workload in turn, so that their order can be trusted."""
        return self._runner.compare(candidate, builds, rounds, self._options)

    def incumbent(self, seconds: float, candidate: MeasureInput) -> None:
        """Tell of an earlier time of the candidate's workload, from the database."""
        key = candidate.workload.key
        self._best[key] = min(seconds, self._best.get(key, seconds))

    def _measure(self, candidate: MeasureInput, build: BuildResult | Failure) -> Measurement:
        if isinstance(build, Failure):
            return Measurement(candidate, None, build)
        key = candidate.workload.key
        code = (key, build.kernel.ir_hash)
        known = self._known.get(code)
        if known is None or (isinstance(known, MeasureResult) and known.disturbed):
            hopeless = self._spill_filter.judge(candidate, build) if self._spill_filter else None
            if hopeless is not None:
                return Measurement(candidate, build, hopeless)
            options = replace(self._options, incumbent=self._best.get(key))
            self._known[code] = self._runner.run(candidate, build, options)
        result = self._known[code]
        if isinstance(result, MeasureResult):
            if not result.disturbed:  # which others would be given up for
                self.incumbent(result.seconds, candidate)
            if self._spill_filter:
                self._spill_filter.observe(candidate, build, result)
        return Measurement(candidate, build, result)


@contextmanager
def open_pipeline(
    target: Target,
    *,
    policy: TimingPolicy | None = None,
    weight_bytes: int = 0,
    timeout: float = 30.0,
    imports: tuple[str, ...] = (),
) -> Iterator[tuple[Pipeline, Runner]]:
    """Builders, a runner and the pipeline between them, fitted to this machine; the processes end with the context.

    Where cores are left beside the kernel's threads, they build meanwhile; else all cores build, then all run.

    Raises:
        TargetError: this machine cannot run code for `target`.
    """
    cores = machine.allowed_cores()
    spare = cores - target.num_threads
    builders = min(spare, _MOST_BUILDERS) if spare > 0 else min(cores, _MOST_BUILDERS)
    with (
        Runner(target, policy, timeout=timeout, imports=imports) as runner,
        Builder(builders, timeout=timeout, imports=imports) as builder,
    ):
        ahead = 2 * builders + 2
        yield (
            Pipeline(
                builder,
                runner,
                ahead=ahead,
                take_turns=spare <= 0,
                weight_bytes=weight_bytes,
                spill_filter=SpillFilter(),
            ),
            runner,
        )
