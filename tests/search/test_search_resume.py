"""Earlier trials of a changed space: the best is kept while its stored steps give its code, and it can still win."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.measure.types import MeasureInput
from autotune.ops.parse import parse_workload
from autotune.records import Database, TuningRecord
from autotune.search import recording
from autotune.search.budget import Budget
from autotune.search.events import Event, FinalistsCompared, RecordsOutdated, TaskResumed
from autotune.search.outcome import TuneOutcome
from autotune.search.recording import earlier_trials, replayable
from autotune.search.task import TuningTask
from autotune.search.tuner import TuneOptions, tune
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.space import ConfigSpace, Member, TaskSpace
from autotune.target import Target
from tests.search.simulated import LINE, TARGET, SimulatedPipeline

FAST = Config.of(template="synthetic", tile=9)


def task_of(*tiles: int, template: str = "synthetic") -> TuningTask:
    space = ConfigSpace((Choice("tile", tiles),))
    return TuningTask(parse_workload(LINE), TARGET, TaskSpace({template: Member(space, space.default())}))


def seconds(candidate: MeasureInput) -> float:
    """Larger tiles are faster."""
    return 1.0 / candidate.config.get_int("tile")


def run(
    database: Database, task: TuningTask, pipeline: SimulatedPipeline, finalists: int = 0
) -> tuple[TuneOutcome, list[Event]]:
    events: list[Event] = []
    outcome = tune(
        [task],
        pipeline=pipeline,
        database=database,
        budget=Budget(trials=20),
        options=TuneOptions(strategy="grid", finalists=finalists),
        callbacks=[events.append],
        clock=pipeline.clock,
        wall=lambda: 1.7e9 + pipeline.now,
    )
    return outcome, events


def stored(database: Database, config: Config) -> TuningRecord:
    (found,) = [record for record in database.trials() if record.config_key == config.key]
    return found


def test_a_trial_that_the_space_has_no_config_for_is_kept_when_it_is_best(database: Database) -> None:
    run(database, task_of(1, 2, 9), SimulatedPipeline(seconds))
    before = stored(database, FAST)
    pipeline = SimulatedPipeline(seconds, replays=True)
    outcome, events = run(database, task_of(1, 2, 3), pipeline, finalists=2)
    best = outcome.tasks[0].best
    assert best is not None and best.config == FAST
    (resumed,) = [event for event in events if isinstance(event, TaskResumed)]
    assert (resumed.trials, resumed.incumbent_seconds) == (3, before.seconds)
    assert [candidate.config.get_int("tile") for candidate in pipeline.measured] == [3]
    assert pipeline.incumbents == [before.seconds]
    (compared,) = [event for event in events if isinstance(event, FinalistsCompared)]
    assert compared.problem == "" and compared.trials[0].config == FAST
    after = stored(database, FAST)
    assert after.ir_hash == before.ir_hash


def test_a_best_that_was_not_compared_is_compared_by_the_next_run(database: Database) -> None:
    task = task_of(1, 2, 9)
    run(database, task, SimulatedPipeline(seconds))
    assert not any(stored(database, FAST).timed_beside(other) for other in database.trials())
    pipeline = SimulatedPipeline(seconds)
    outcome, _ = run(database, task, pipeline, finalists=2)
    assert outcome.new_trials == 0 and len(pipeline.compared) == 1
    beside = [other.config_key for other in database.trials() if stored(database, FAST).timed_beside(other)]
    assert task.space.default().key in beside, "whoever reads the records sees what was timed in turn"
    again = SimulatedPipeline(seconds)
    run(database, task, again, finalists=2)
    assert again.compared == [], "once is enough"


def test_what_was_disturbed_and_still_faster_than_the_default_is_compared_with_it(database: Database) -> None:
    task = task_of(1, 2, 9)
    pipeline = SimulatedPipeline(seconds, disturbed=lambda config: config != task.space.default())
    outcome, _ = run(database, task, pipeline, finalists=2)
    best = outcome.tasks[0].best
    assert best is not None and best.config == FAST and best.compared and not best.disturbed


def test_a_retimed_replay_does_not_claim_that_its_config_gives_the_code(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "version_mark", lambda workload, config: "+0123")
    run(database, task_of(1, 2, 9), SimulatedPipeline(seconds))
    assert stored(database, FAST).autotune_version.endswith("+0123")
    run(database, task_of(1, 2, 3), SimulatedPipeline(seconds, replays=True), finalists=2)
    assert "+" not in stored(database, FAST).autotune_version
    assert stored(database, Config.of(template="synthetic", tile=3)).autotune_version.endswith("+0123")


def test_a_trial_whose_steps_give_other_code_is_not_kept(database: Database) -> None:
    run(database, task_of(1, 2, 9), SimulatedPipeline(seconds))
    outcome, events = run(database, task_of(1, 2, 3), SimulatedPipeline(seconds))
    best = outcome.tasks[0].best
    assert best is not None and best.config.get_int("tile") == 3
    (resumed,) = [event for event in events if isinstance(event, TaskResumed)]
    assert resumed.trials == 2


def test_a_slower_trial_is_not_even_replayed(database: Database) -> None:
    run(database, task_of(1, 2, 3), SimulatedPipeline(seconds))
    pipeline = SimulatedPipeline(seconds, replays=True)
    run(database, task_of(1, 3, 4), pipeline)
    assert [config.get_int("tile") for config in pipeline.built] == [3]  # to see whether its code is the same


def test_a_faster_trial_that_counts_is_not_built_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disturbed, it is not the best, and yet its config gives its code."""
    monkeypatch.setattr(recording, "version_mark", lambda workload, config: "+0123")
    task = task_of(1, 2, 9)
    run(database, task, SimulatedPipeline(seconds, disturbed=lambda config: config == FAST))
    pipeline = SimulatedPipeline(seconds, replays=True)
    run(database, task, pipeline)
    assert pipeline.built == []


def test_the_best_is_kept_when_its_config_gives_other_code(database: Database) -> None:
    """The history does not count, and the search goes on against the best of it."""
    run(database, task_of(1, 2, 9), SimulatedPipeline(seconds))
    changed = SimulatedPipeline(lambda c: 2 * seconds(c), code=lambda config: "new" + config.key, replays=True)
    outcome, events = run(database, task_of(1, 2, 9), changed)
    (outdated,) = [event for event in events if isinstance(event, RecordsOutdated)]
    assert (outdated.trials, outdated.kept_seconds) == (3, 1 / 9)
    best = outcome.tasks[0].best
    assert best is not None and (best.config, best.seconds) == (FAST, 1 / 9)
    assert not stored(database, FAST).ir_hash.startswith("new")


def test_the_default_is_measured_anew(database: Database) -> None:
    run(database, task_of(9, 1, 2), SimulatedPipeline(seconds))
    changed = SimulatedPipeline(lambda c: 2 * seconds(c), code=lambda config: "new" + config.key, replays=True)
    outcome, _ = run(database, task_of(9, 1, 2), changed)
    assert outcome.tasks[0].default_seconds == 2 / 9
    assert stored(database, FAST).ir_hash.startswith("new")


def test_a_strict_task_keeps_nothing_that_errs_more(database: Database) -> None:
    task, strict = task_of(1, 2), replace(task_of(1, 2), strict_fp=True)
    for tile, algorithm in ((5, "winograd_f4"), (6, ""), (7, "direct")):
        pipeline = SimulatedPipeline(seconds)
        run(database, task_of(tile), pipeline)
        old = stored(database, Config.of(template="synthetic", tile=tile))
        database.add(replace(old, algorithm=algorithm))
    assert earlier_trials(database, task) == {}
    assert [trial.config.get_int("tile") for trial, _ in replayable(database, task, 3)] == [7, 6, 5]
    assert [trial.config.get_int("tile") for trial, _ in replayable(database, strict, 3)] == [7]


def test_records_of_another_target_are_not_kept(database: Database) -> None:
    run(database, task_of(1, 2, 9), SimulatedPipeline(seconds))
    other = replace(task_of(1, 2), target=Target.parse("x86 -mcpu=skylake -num-cores=1"))
    assert replayable(database, other, 3) == []
