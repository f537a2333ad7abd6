"""The tuning loop: propose, measure, record, learn, until the budget is spent; then settle who has won.

The loop owns no process and no file. Candidates flow lazily through a pipeline that builds ahead, every
trial is in the database before the next is looked at, and what a stopped run left there counts as done.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from autotune.errors import ConfigError
from autotune.measure.failure import Failure
from autotune.measure.pipeline import Measurement
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.ops.workload import Workload
from autotune.records import Database
from autotune.search.budget import Budget
from autotune.search.effort import Effort
from autotune.search.events import (
    Callback,
    Event,
    FinalistsChosen,
    FinalistsCompared,
    FinalistsLeft,
    RecordsOutdated,
    TaskResumed,
    TaskStopped,
    TrialFinished,
)
from autotune.search.finalists import settle
from autotune.search.measuring import Measuring
from autotune.search.models import ModelMaker, model_for
from autotune.search.outcome import TaskOutcome, TuneOutcome
from autotune.search.recording import Recorder
from autotune.search.resume import histories
from autotune.search.scheduler import TaskScheduler
from autotune.search.seeds import complete_families, seeds
from autotune.search.shares import Clock, TimedModel, TimeShares
from autotune.search.strategies import DEFAULT_STRATEGY, make_strategy
from autotune.search.task import TaskSearch, TuningTask
from autotune.search.trial import SKIPPED, Trial, best_trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface

HEARTBEAT_SECONDS = 15.0
SETTLE_SHARE = 0.25
SETTLE_SECONDS, SETTLE_DISTURBED = 1.5, 9.0
IN_FLIGHT_SECONDS = 1.0
"""Of a time, what is kept for the finalists: so many seconds for each task that has any, more where trials are
disturbed, up to the second number where all are; and some for the trials under way, but no larger share."""

WARMING = 0.5
"""Share of a budget after which tasks are compared, whether all have had their warm-up or not."""


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """
    Attributes:
        strategy: a name among `STRATEGIES`.
        warmup: trials that each task gets before tasks are compared; fewer when half of the budget is spent before.
        batch: configs that a strategy proposes at a time.
        patience: trials without a gain after which a task stops; None never stops for that.
        same_failures: failures in a row, equal in kind and message, after which a task stops.
        finalists: how many of the best are timed again, interleaved with the default; 0 for none.
        seed: of everything random.
    """

    strategy: str = DEFAULT_STRATEGY
    warmup: int = 16
    batch: int = 8
    patience: int | None = None
    same_failures: int = 20
    finalists: int = 3
    seed: int = 0

    @staticmethod
    def of(effort: Effort, strategy: str, seed: int) -> TuneOptions:
        """What an effort asks for."""
        return TuneOptions(
            strategy, effort.warmup, effort.batch, effort.patience, finalists=effort.finalists, seed=seed
        )  # fmt: skip


def tune(
    tasks: Sequence[TuningTask],
    *,
    pipeline: Measuring,
    database: Database,
    budget: Budget,
    options: TuneOptions | None = None,
    callbacks: Sequence[Callback] = (),
    command: str = "",
    make_model: ModelMaker = model_for,
    clock: Clock = time.monotonic,
    wall: Clock = time.time,
) -> TuneOutcome:
    """Tunes tasks until the budget is spent, all of them have stopped, or Ctrl-C.

    Ctrl-C is an ordinary ending: trials finished until then are recorded, the session is marked as interrupted,
    and the outcome says so.

    Args:
        pipeline: builds and measures.
        database: trials found in it are not repeated.
        callbacks: told of every event, in this thread.
        command: what the user called, for the session's row.
        make_model: a cost model for a space from a seed, one per task.
        clock: monotonic seconds. `wall`: seconds since the epoch.

    Raises:
        ConfigError: no task, two equal tasks, or an unknown strategy.
        DatabaseError, MeasureError: a trial cannot be stored, or the measuring machinery broke.
    """
    if not tasks:
        raise ConfigError("there is nothing to tune: no task was given")
    complete_families(database)
    run = _Run(tasks, pipeline, database, budget, options or TuneOptions(), callbacks, make_model, clock, wall)
    recorder = Recorder(database, wall(), command)
    interrupted = True
    try:
        run.resume()
        run.search(recorder)
        run.settle(recorder)
        interrupted = False
    except KeyboardInterrupt:
        pass
    finally:
        recorder.finish(interrupted, wall())
    return run.outcome(recorder.session_id, interrupted)


class _Run:
    """The state of one call of `tune`."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        pipeline: Measuring,
        database: Database,
        budget: Budget,
        options: TuneOptions,
        callbacks: Sequence[Callback],
        make_model: ModelMaker,
        clock: Clock,
        wall: Clock,
    ) -> None:
        self._pipeline, self._database = pipeline, database
        self._budget, self._options, self._callbacks = budget, options, callbacks
        self._clock, self._wall = clock, wall
        self._start = clock()
        self._shares = TimeShares(clock)
        self._searches: dict[tuple[str, str], TaskSearch] = {}
        self._new: dict[TaskSearch, int] = {}
        self._chance: dict[TaskSearch, random.Random] = {}
        self._known = self._fresh = 0  # trials that there were before, and that this run has made, of all tasks
        self._measured = self._disturbed = 0  # of this run's trials, those that worked, and of these those disturbed
        self._failures: dict[TaskSearch, tuple[str, int]] = {}
        self._timed: set[tuple[str, str]] = set()
        for number, task in enumerate(tasks):
            rng = random.Random(f"{options.seed}/{task.workload.key}")
            model = TimedModel(make_model(task.space, options.seed + number), self._shares)
            strategy = make_strategy(options.strategy, task.space, model, rng)
            search = TaskSearch(task, strategy, batch=options.batch, seeds=seeds(database, task))
            if self._searches.setdefault(_identity(task.workload, task.interface), search) is not search:
                raise ConfigError(f"the task {task.name} is given twice; add up the weights instead")
            self._new[search], self._chance[search] = 0, rng

    def resume(self) -> None:
        """Counts what the database has as done, if the same configs still give the same code (see `resume`)."""
        with self._shares.spending("wait"):
            found = histories(list(self._searches.values()), self._database, self._pipeline.build)
        for search, history in found.items():
            if history.held is not None:
                search.hold(*history.held)
            for trial in history.trials:
                search.observe(trial)
            if history.trials:  # else chance would draw again what it drew before
                self._chance[search].seed(f"{self._options.seed}/{search.task.workload.key}/{len(history.trials)}")
            best = search.best
            if best is not None:
                self._pipeline.incumbent(best.cost, search.candidate(best.config))
            if history.outdated:
                self._tell(RecordsOutdated(search.task, history.outdated, best.seconds if best else None))
            elif search.trials:
                self._tell(TaskResumed(search.task, len(search.trials), best.seconds if best else None))
            self._stop_if_hopeless(search)
        self._known = sum(len(search.trials) for search in self._searches.values())

    def search(self, recorder: Recorder) -> None:
        """Measures candidates until there are none."""
        beat = self._clock()
        with closing(self._measurements()) as measurements:
            while True:
                with self._shares.spending("wait"):
                    measurement = next(measurements, None)
                if measurement is None:
                    return
                candidate = measurement.candidate
                search, config = self._searches[_identity(candidate.workload, candidate.interface)], candidate.config
                with self._shares.spending("record"):
                    build, result, score = measurement.build, measurement.result, search.predicted(config)
                    recorder.add(search.task, config, build, result, self._wall(), score)
                    if self._clock() - beat > HEARTBEAT_SECONDS:
                        beat = self._clock()
                        recorder.heartbeat(self._wall())
                self._observe(search, measurement)

    def settle(self, recorder: Recorder) -> None:
        """Times each task's best again, interleaved with its default, while there is time; the heaviest come first.

        Of tasks without new trials, those too that are in doubt (see `TaskSearch`). Before all
        others come those whose default was faster than the best is, but beside other programs: until it is timed again,
        what is slower counts.
        """
        todo = [
            search
            for search in self._searches.values()
            if self._options.finalists and (self._new[search] or search.in_doubt)
        ]
        todo.sort(key=lambda search: (_lost_seconds(search), _model_seconds(search)), reverse=True)
        if todo:
            self._tell(FinalistsChosen(tuple(search.task for search in todo)))
        for place, search in enumerate(todo):
            if self._budget.seconds is not None and self._elapsed() >= self._budget.seconds:
                self._tell(FinalistsLeft(tuple(left.task for left in todo[place:])))
                return
            with self._shares.spending("wait"):
                settled = settle(search, self._options.finalists, self._pipeline)
            if settled is None:
                continue
            with self._shares.spending("record"):
                now = self._wall()  # one date, by which compilers know what was timed in turn
                for trial, build, result in settled.retimed:
                    score = search.predicted(trial.config)
                    replayed = search.candidate(trial.config).recorded is not None
                    recorder.add(search.task, trial.config, build, result, now, score, replayed=replayed)
            self._tell(FinalistsCompared(search.task, settled.trials, settled.problem))

    def outcome(self, session_id: str, interrupted: bool) -> TuneOutcome:
        tasks = tuple(TaskOutcome.of(search, self._new[search]) for search in self._searches.values())
        return TuneOutcome(tasks, self._elapsed(), dict(self._shares.seconds), interrupted, session_id)

    def _measurements(self) -> Generator[Measurement, None, None]:
        yield from self._pipeline.measure(self._candidates())

    def _candidates(self) -> Iterator[MeasureInput]:
        """What to measure next, decided as late as possible: the pipeline draws one when it has room."""
        scheduler = TaskScheduler(list(self._searches.values()), self._options.warmup)
        while True:
            started, seconds = self._started(), self._elapsed() + self._seconds_kept()
            if self._budget.is_spent(started, seconds):
                return
            with self._shares.spending("search"):
                search = scheduler.next(self._budget.spent(started, seconds) < WARMING)
                config = search.next_config() if search is not None else None
            if search is None:
                return
            if config is None:
                self._stop(search, "every config of its space was tried")
                continue
            yield search.task.candidate(config)

    def _seconds_kept(self) -> float:
        """For the finalists there are now."""
        if self._budget.seconds is None or not self._options.finalists:
            return 0.0
        contested = sum(search.contested for search in self._searches.values())
        disturbed = self._disturbed / max(1, self._measured)
        each = SETTLE_SECONDS + disturbed * (SETTLE_DISTURBED - SETTLE_SECONDS)
        return min(SETTLE_SHARE * self._budget.seconds, IN_FLIGHT_SECONDS + each * contested)

    def _observe(self, search: TaskSearch, measurement: Measurement) -> None:
        config, build, result = measurement.candidate.config, measurement.build, measurement.result
        score = search.predicted(config)
        if isinstance(result, Failure):
            trial = Trial(config, failure=result.kind, predicted=score, spent=measurement.seconds)
            message = result.message
        else:
            self._measured += 1
            self._disturbed += result.disturbed
            trial = Trial(
                config,
                seconds=result.seconds,
                predicted=score,
                spent=measurement.seconds,
                disturbed=result.disturbed,
            )
            message = ""
        new = config not in search.trials
        self._new[search] += new
        self._fresh += new
        with self._shares.spending("search"):
            search.observe(trial)
        self._account(search, build, result)
        self._tell(
            TrialFinished(
                task=search.task,
                trial=trial,
                message=message,
                number=self._known + self._fresh,
                task_number=len(search.trials),
                incumbent_seconds=search.best.seconds if search.best else None,
                default_seconds=search.default_trial.seconds if search.default_trial else None,
                gflops=search.gflops,
                elapsed=self._elapsed(),
                eta=self._budget.eta(self._known + self._fresh, self._fresh, self._elapsed()),
            )
        )
        self._count_failure(search, config, result)
        self._stop_if_hopeless(search)

    def _account(self, search: TaskSearch, build: BuildResult | None, result: MeasureResult | Failure) -> None:
        """Adds the workers' seconds."""
        if build is None:
            return
        self._shares.add("build", build.seconds)
        code = (search.task.workload.key, build.kernel.ir_hash)
        if isinstance(result, MeasureResult) and code not in self._timed:
            self._timed.add(code)  # equal code is timed once, and its result comes again
            self._shares.add("run", result.wall_seconds)

    def _count_failure(self, search: TaskSearch, config: Config, result: MeasureResult | Failure) -> None:
        if not isinstance(result, Failure):
            self._failures.pop(search, None)
            return
        if result.kind == SKIPPED:
            return
        what = f"{result.kind}: {' '.join(result.message.split())[:200]}"
        before, times = self._failures.get(search, ("", 0))
        times = times + 1 if what == before else 1
        self._failures[search] = (what, times)
        if times >= self._options.same_failures:
            self._stop(search, f"{times} trials in a row failed alike: {what}; for example {config.to_json()}")

    def _stop_if_hopeless(self, search: TaskSearch) -> None:
        patience = self._options.patience
        if patience is not None and search.since_gain >= patience:
            self._stop(search, f"no gain in {search.since_gain} trials")

    def _stop(self, search: TaskSearch, reason: str) -> None:
        if search.stopped is None:
            search.stopped = reason
            self._tell(TaskStopped(search.task, reason))

    def _tell(self, event: Event) -> None:
        for callback in self._callbacks:
            callback(event)

    def _elapsed(self) -> float:
        return self._clock() - self._start

    def _started(self) -> int:
        return sum(search.started for search in self._searches.values())


def _model_seconds(search: TaskSearch) -> float:
    """Seconds per inference that depend on the task."""
    return search.task.weight * (search.best.cost if search.best is not None else 0.0)


def _lost_seconds(search: TaskSearch) -> float:
    """Seconds per inference by which the default, disturbed when it was timed, was faster than what counts as best."""
    counts, default = best_trial(search.trials.values()), search.default_trial
    if counts is None or default is None or not default.disturbed:
        return 0.0
    return search.task.weight * max(counts.cost - default.cost, 0.0)


def _identity(workload: Workload, interface: Interface | None) -> tuple[str, str]:
    return workload.key, interface.to_json() if interface else ""
