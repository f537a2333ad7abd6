"""Candidates in, measurements out: builds run ahead while as many kernels are timed as there are machines for it.

Nothing here waits for one candidate: each moves on as soon as its build, or its turn to be timed, is over.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

from autotune import machine
from autotune.measure.builder import Builder
from autotune.measure.failure import Failure
from autotune.measure.kept_builds import KeptBuilds
from autotune.measure.local_runner import RunOptions
from autotune.measure.runner import Runner
from autotune.measure.shared_cores import SharedCores
from autotune.measure.spill_filter import SpillFilter
from autotune.measure.timing import TimingPolicy
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.target import Target

_MOST_BUILDERS = 4  # one runner cannot time kernels faster than a few processes build them
_WAITING = 2  # kernels that wait for the runner itself
_AHEAD = 5  # candidates under way for each of them, so that none waits for a few kernels that take long to build or run


class BuilderLike(Protocol):
    """What every builder can do."""

    @property
    def slots(self) -> int:
        """How many candidates it builds at the same time, now."""

    def submit(self, candidate: MeasureInput) -> Future[BuildResult | Failure]:
        """Queue a candidate; at once back."""


class RunnerLike(Protocol):
    """What every runner can do."""

    @property
    def slots(self) -> int:
        """How many kernels it times at the same time, now: one for each machine."""

    def submit(
        self, candidate: MeasureInput, build: BuildResult, options: RunOptions
    ) -> Future[MeasureResult | Failure]:
        """Queue a kernel to be verified and timed; at once back."""

    def compare(
        self, candidate: MeasureInput, builds: Sequence[BuildResult], rounds: int, options: RunOptions
    ) -> list[MeasureResult | Failure]:
        """Verify kernels of one workload, then time them in turn, on one machine."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One trial: the candidate, its build (None when that failed), and how it ended.

    `seconds`: what it cost, its build and its turn in the runner; of a build that failed, what was waited for it.
    """

    candidate: MeasureInput
    build: BuildResult | None
    result: MeasureResult | Failure
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class _Flight:
    """A candidate under way: being built, waiting to be timed, or being timed."""

    candidate: MeasureInput
    building: Future[BuildResult | Failure]
    build: BuildResult | Failure | None = None
    running: Future[MeasureResult | Failure] | None = None
    started: float = field(default_factory=time.monotonic)  # to be built, then to be timed

    @property
    def code(self) -> tuple[str, str]:
        """Equal code of one workload takes equal time; a build that failed has none."""
        return self.candidate.workload.key, self.build.kernel.ir_hash if isinstance(self.build, BuildResult) else ""


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
        ahead: int | None = None,
        take_turns: bool = False,
        weight_bytes: int = 0,
        spill_filter: SpillFilter | None = None,
        cores: SharedCores | None = None,
    ) -> None:
        """
        Args:
            builder: compiles.
            runner: verifies and times.
            ahead: how many candidates are under way at most; None: enough to keep all builders and runners busy.
            take_turns: time nothing while something is built; needed when builders and the kernel's threads are
                more than the cores.
            weight_bytes: size of the model's weights, 0 for a single operator; see `RunOptions`.
            spill_filter: what need not be run; None runs all that builds.
            cores: whose turn it is, where builders and runner share cores; None begins all at once.
        """
        self._builder = builder
        self._runner = runner
        self._ahead = ahead
        self._take_turns = take_turns
        self._spill_filter = spill_filter
        self._cores = cores
        self._options = RunOptions(weight_bytes=weight_bytes)
        self._best: dict[str, float] = {}
        self._known: dict[tuple[str, str], MeasureResult | Failure] = {}
        self._built = KeptBuilds()
        self._last = 0.0  # when a candidate last ended

    def measure(self, candidates: Iterable[MeasureInput]) -> Iterator[Measurement]:
        """Yield one measurement per candidate: of those that have finished, the one drawn first.

        Candidates are drawn `ahead` at most before their results are seen, so an iterable that looks at the results
        so far works well. Nothing new begins while the caller looks at a measurement. Closing the iterator drops what
        has not begun.
        """
        source = iter(candidates)
        flights: list[_Flight] = []
        moved = threading.Event()
        try:
            while True:
                if not (self._take_turns and flights):
                    for candidate in islice(source, max(0, self._most() - len(flights))):
                        flights.append(_Flight(candidate, self._start_build(candidate)))
                        flights[-1].building.add_done_callback(lambda _: moved.set())
                    if self._take_turns:
                        wait([flight.building for flight in flights])
                if not flights:
                    return
                moved.clear()
                done = self._move_on(flights, moved)
                if done is None:
                    moved.wait()
                    continue
                flights.remove(done[0])
                yield done[1]
        finally:
            for flight in flights:
                flight.building.cancel()
                if flight.running is not None:
                    flight.running.cancel()

    def build(self, candidates: Sequence[MeasureInput]) -> list[BuildResult | Failure]:
        """Only build, all at once: for kernels to be compared, or to see whether old records still fit.

        What was measured lately is not built again.
        """
        kept = {candidate: self._built.get(candidate) for candidate in candidates}
        futures = {candidate: self._builder.submit(candidate) for candidate, build in kept.items() if build is None}
        return [kept[candidate] or futures[candidate].result() for candidate in candidates]

    def compare(
        self, candidate: MeasureInput, builds: Sequence[BuildResult], rounds: int = 20
    ) -> list[MeasureResult | Failure]:
        """Time kernels of the candidate's workload in turn, so that their order can be trusted."""
        return self._runner.compare(candidate, builds, rounds, self._options)

    def incumbent(self, seconds: float, candidate: MeasureInput) -> None:
        """Tell of an earlier time of the candidate's workload, from the database."""
        key = candidate.workload.key
        self._best[key] = min(seconds, self._best.get(key, seconds))

    def _start_build(self, candidate: MeasureInput) -> Future[BuildResult | Failure]:
        start = functools.partial(self._builder.submit, candidate)
        return start() if self._cores is None else self._cores.build(start)

    def _start_run(
        self, candidate: MeasureInput, build: BuildResult, options: RunOptions
    ) -> Future[MeasureResult | Failure]:
        start = functools.partial(self._runner.submit, candidate, build, options)
        return start() if self._cores is None else self._cores.run(start)

    def _most(self) -> int:
        if self._ahead is not None:
            return self._ahead
        return 2 * self._builder.slots + 2 * self._runner.slots

    def _move_on(self, flights: Sequence[_Flight], moved: threading.Event) -> tuple[_Flight, Measurement] | None:
        """The first that has ended; before it is found, those drawn earlier move on as far as there is room."""
        busy = {flight.code for flight in flights if flight.running is not None}
        under_way = sum(flight.running is not None and not flight.running.done() for flight in flights)
        # Some more than can run begin at once when it is their turn, whatever the caller is thinking about then.
        room = self._runner.slots + (_WAITING if self._cores is not None else 0) - under_way
        for flight in flights:
            if flight.build is None and flight.building.done():
                flight.build = flight.building.result()
            build = flight.build
            if build is None or (
                flight.running is None and flight.code in busy
            ):  # or it is timed already, as another's
                continue
            known = self._known_result(flight, build) if flight.running is None else None
            if known is not None:
                return flight, self._landed(flight, build, known)
            if flight.running is None and room > 0 and isinstance(build, BuildResult):
                busy.add(flight.code)
                room -= 1
                options = replace(self._options, incumbent=self._best.get(flight.candidate.workload.key))
                flight.started = time.monotonic()
                flight.running = self._start_run(flight.candidate, build, options)
                flight.running.add_done_callback(lambda _: moved.set())
            if flight.running is not None and flight.running.done():
                result = self._known[flight.code] = flight.running.result()
                if self._cores is not None and isinstance(result, MeasureResult):
                    self._cores.learn(result.disturbed)
                return flight, self._landed(flight, build, result)
        return None

    def _known_result(self, flight: _Flight, build: BuildResult | Failure) -> MeasureResult | Failure | None:
        """What can be said without running it; None when it has to run."""
        if isinstance(build, Failure):
            return build
        known = self._known.get(flight.code)
        if known is not None and not (isinstance(known, MeasureResult) and known.disturbed):
            return known
        return self._spill_filter.judge(flight.candidate, build) if self._spill_filter else None

    def _landed(self, flight: _Flight, build: BuildResult | Failure, result: MeasureResult | Failure) -> Measurement:
        """The result as a measurement; what it says of others is remembered."""
        candidate, now, before = flight.candidate, time.monotonic(), self._last
        self._last = now
        if not isinstance(build, BuildResult):
            return Measurement(candidate, None, result, now - max(flight.started, before))
        self._built.add(candidate, build)
        if isinstance(result, MeasureResult):
            if not result.disturbed:  # which others would be given up for
                self.incumbent(result.seconds, candidate)
            if self._spill_filter:
                self._spill_filter.observe(candidate, build, result)
        running = 0.0
        if flight.running is not None:  # its turn alone: what it waited for was others' builds
            running = result.wall_seconds if isinstance(result, MeasureResult) else now - flight.started
        return Measurement(candidate, build, result, build.seconds + running)


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

    All cores build; while a kernel is timed, those that it leaves. Where it leaves none, all build, then all run.

    Raises:
        TargetError: this machine cannot run code for `target`.
    """
    with (
        Runner(target, policy, timeout=timeout, imports=imports) as runner,
        pipeline_of(runner, target, weight_bytes=weight_bytes, timeout=timeout, imports=imports) as pipeline,
    ):
        yield pipeline, runner


@contextmanager
def pipeline_of(
    runner: RunnerLike,
    target: Target,
    *,
    weight_bytes: int = 0,
    timeout: float = 30.0,
    imports: tuple[str, ...] = (),
) -> Iterator[Pipeline]:
    """Builders for a runner of this machine, see `open_pipeline`, and the pipeline between them."""
    cores, threads = machine.allowed_cores(), target.num_threads
    builders = min(cores, _MOST_BUILDERS)
    with Builder(builders, timeout=timeout, imports=imports) as builder:
        yield Pipeline(
            builder,
            runner,
            ahead=_AHEAD * builders,
            take_turns=cores <= threads,
            weight_bytes=weight_bytes,
            spill_filter=SpillFilter(),
            cores=SharedCores(cores, threads, builders),
        )
