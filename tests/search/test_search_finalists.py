"""Finalists: what is compared when there is time for some, and what counts where there was none."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from autotune.compiler.choose import Choice, Chooser
from autotune.measure.failure import Failure
from autotune.measure.types import MeasureInput, MeasureResult
from autotune.ops import Workload
from autotune.records import Database, Tier, TuningRecord
from autotune.search.budget import Budget
from autotune.search.events import Event, FinalistsChosen, FinalistsCompared, FinalistsLeft
from autotune.search.outcome import TuneOutcome
from autotune.search.task import TuningTask
from autotune.search.tuner import TuneOptions, tune
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import ConfigSpace
from tests.search.conftest import landscape
from tests.search.simulated import TARGET, SimulatedPipeline, make_task


def compared_once(
    tasks: list[TuningTask], pipeline: SimulatedPipeline, database: Database
) -> tuple[TuneOutcome, TuningTask, tuple[TuningTask, ...]]:
    """The outcome of a run whose first comparison takes all the time, what was compared, and what was left."""
    compare, events = pipeline.compare, list[Event]()

    def slow(*args: Any, **kwargs: Any) -> list[MeasureResult | Failure]:
        pipeline.now += 200.0
        return compare(*args, **kwargs)

    pipeline.compare = slow  # type: ignore[method-assign]
    outcome = tune(
        tasks, pipeline=pipeline, database=database, budget=Budget(seconds=100.0),
        options=TuneOptions(strategy="random"), callbacks=[events.append], clock=pipeline.clock,
    )  # fmt: skip
    (compared,) = (event for event in events if isinstance(event, FinalistsCompared))
    (left,) = (event for event in events if isinstance(event, FinalistsLeft))
    (chosen,) = (event for event in events if isinstance(event, FinalistsChosen))
    assert chosen.tasks == (compared.task, *left.tasks)
    return outcome, compared.task, left.tasks


def test_finalists_end_with_the_time(database: Database, space: ConfigSpace) -> None:
    tasks = [make_task(space, channels) for channels in (8, 16, 24)]
    _, compared, left = compared_once(tasks, SimulatedPipeline(landscape, ahead=1), database)
    assert len(left) == 2 and compared not in left


def test_a_default_faster_beside_others_than_the_best_is_compared_first(database: Database, space: ConfigSpace) -> None:
    tasks = [make_task(space, channels) for channels in (8, 16, 24)]
    default = tasks[0].space.default()

    def cost(one: MeasureInput) -> float:
        return {True: (1.0, 2.0), False: (4.0, 3.0)}[one.workload == tasks[0].workload][one.config != default]

    pipeline = SimulatedPipeline(cost, ahead=1, disturbed=lambda config: config == default)
    outcome, compared, _ = compared_once(tasks, pipeline, database)
    assert compared == tasks[0] and (best := outcome.tasks[0].best) and best.config == default and not best.disturbed


def test_nothing_is_best_that_a_default_beats_beside_others(database: Database, space: ConfigSpace) -> None:
    """Though no time is left to compare: a tuned kernel slower than the untuned one is none that anybody uses."""
    tasks = [make_task(space, channels) for channels in (8, 16)]
    default = tasks[0].space.default()
    pipeline = SimulatedPipeline(
        lambda one: 1.0 if one.config == default else 2.0, ahead=1, disturbed=lambda config: config == default
    )
    outcome, _, (left,) = compared_once(tasks, pipeline, database)
    (found,) = (one for one in outcome.tasks if one.task == left)
    assert found.best is not None and found.best.config == default and found.speedup == 1.0


class RecordsAsTheyAre(Chooser):
    """Of a synthetic space, whose configs no template knows."""

    def _chosen(self, workload: Workload, record: TuningRecord, reason: str, sure: bool) -> Choice | str:
        return Choice(Config.from_json(record.config), Tier.EXACT, reason, record.seconds)


@pytest.mark.parametrize("seed", range(24))
def test_a_compiler_finds_what_was_compared_whatever_others_disturbed(
    seed: int, database: Database, space: ConfigSpace
) -> None:
    """Trials, comparisons, or both beside other programs, whose times differ from one look to the next."""
    rng = random.Random(seed)
    noise, trials, comparisons = rng.choice((0.03, 0.3, 1.0)), rng.choice((0.1, 0.5)), rng.choice((0.3, 0.9))

    def cost(one: MeasureInput) -> float | Failure:
        found = landscape(one)
        return found if isinstance(found, Failure) else found * (1 + noise * rng.random()) * rng.choice((1, 1, 1, 1.6))

    pipeline = SimulatedPipeline(cost, ahead=2, disturbed=lambda _: rng.random() < trials)
    compare = pipeline.compare

    def beside_others(*args: Any, **kwargs: Any) -> list[MeasureResult | Failure]:
        found = compare(*args, **kwargs)
        return [
            one if isinstance(one, Failure) else replace(one, disturbed=rng.random() < comparisons) for one in found
        ]

    pipeline.compare = beside_others  # type: ignore[method-assign]
    task, days = make_task(space), iter(range(10**6))
    tune(
        [task], pipeline=pipeline, database=database, budget=Budget(trials=rng.choice((10, 30))),
        options=TuneOptions(strategy="random", seed=seed), clock=pipeline.clock, wall=lambda: float(next(days)),
    )  # fmt: skip
    choice = RecordsAsTheyAre(TARGET, database, untuned=lambda *_: task.space.default())(task.workload)
    assert choice.tuned, choice.reason


def test_a_host_that_becomes_slower_between_two_rounds_makes_no_winner(database: Database, space: ConfigSpace) -> None:
    """The best of the first round was in turn with a default that was faster then."""
    rng, rounds = random.Random(0), list[int]()

    def lucky(one: MeasureInput) -> float | Failure:
        found = landscape(one)
        return found if isinstance(found, Failure) else found * rng.choice((0.5, 1.0))

    pipeline = SimulatedPipeline(lucky, true_cost=landscape)
    compare = pipeline.compare

    def slower(*args: Any, **kwargs: Any) -> list[MeasureResult | Failure]:
        rounds.append(len(rounds))
        found = compare(*args, **kwargs)
        pace = 1.0 if len(rounds) == 1 else 2.0
        return [one if isinstance(one, Failure) else replace(one, seconds=pace * one.seconds) for one in found]

    pipeline.compare = slower  # type: ignore[method-assign]
    task = make_task(space)
    (outcome,) = tune(
        [task], pipeline=pipeline, database=database, budget=Budget(trials=40),
        options=TuneOptions(strategy="random"), clock=pipeline.clock,
    ).tasks  # fmt: skip
    assert len(rounds) > 1 and outcome.best is not None and outcome.best.compared
    default, best = (landscape(task.candidate(config)) for config in (task.space.default(), outcome.best.config))
    assert isinstance(default, float) and isinstance(best, float)
    assert outcome.best.seconds == pytest.approx(best)
    assert outcome.speedup == pytest.approx(default / best)
