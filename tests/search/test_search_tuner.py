"""The tuning loop on a simulated pipeline: resume, stopping, Ctrl-C, finalists, several tasks."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from autotune.errors import ConfigError, DatabaseError
from autotune.measure.failure import Failure
from autotune.measure.types import MeasureInput
from autotune.ops.parse import parse_workload
from autotune.records import Database, SessionState, Tier
from autotune.records.fields import rounded
from autotune.search import recording
from autotune.search.budget import Budget
from autotune.search.events import (
    Event,
    FinalistsCompared,
    RecordsOutdated,
    TaskResumed,
    TaskStopped,
    TrialFinished,
)
from autotune.search.outcome import TuneOutcome
from autotune.search.task import TuningTask
from autotune.search.tuner import TuneOptions, tune
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.space import ENUMERABLE, ConfigSpace, Space, TaskSpace
from autotune.target import Target
from tests.search.conftest import landscape, synthetic_trial
from tests.search.simulated import LINE, TARGET, SimulatedPipeline, make_task

Kind = TypeVar("Kind", bound=Event)


@pytest.fixture
def task(space: ConfigSpace) -> TuningTask:
    return make_task(space)


class Run:
    """`tune` with what the tests rarely change, and the events it told."""

    def __init__(self, database: Database, pipeline: SimulatedPipeline) -> None:
        self.database, self.pipeline = database, pipeline
        self.events: list[Event] = []

    def __call__(self, tasks: list[TuningTask], budget: str, **options: object) -> TuneOutcome:
        return tune(
            tasks,
            pipeline=self.pipeline,
            database=self.database,
            budget=Budget.parse(budget),
            options=TuneOptions(**{"strategy": "random", **options}),  # type: ignore[arg-type]
            callbacks=[self.events.append],
            clock=self.pipeline.clock,
            wall=lambda: 1.7e9 + self.pipeline.now,
        )

    def told(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]


def test_the_default_is_first_and_every_trial_is_recorded(task: TuningTask, database: Database) -> None:
    run = Run(database, SimulatedPipeline(landscape))
    outcome = run([task], "40 trials", finalists=0)
    configs = [candidate.config for candidate in run.pipeline.measured]
    assert configs[0] == task.space.default()
    assert len(set(configs)) == len(configs) == outcome.new_trials == 40
    records = list(database.trials(task.workload.key, TARGET.key))
    assert [record.config_key for record in records] == [config.key for config in configs]
    assert {record.failure_kind for record in records} == {None, "timeout"}
    result = outcome.tasks[0]
    assert result.best is not None
    best = database.best(task.workload.key, TARGET.key, TARGET.to_json())
    assert (best.tier, best.record and best.record.config_key) == (Tier.EXACT, result.best.config.key)
    assert result.default_seconds == landscape(run.pipeline.measured[0])
    assert result.speedup == result.default_seconds / result.best.cost
    assert result.failed == sum(record.failure_kind is not None for record in records) > 0
    assert [session.state for session in database.sessions()] == [SessionState.FINISHED]


def test_events_say_how_far_it_is(task: TuningTask, database: Database) -> None:
    run = Run(database, SimulatedPipeline(landscape))
    run([task], "20 trials", finalists=0)
    trials = run.told(TrialFinished)
    assert [event.number for event in trials] == list(range(1, 21))
    assert [event.task_number for event in trials] == list(range(1, 21))
    incumbents = [event.incumbent_seconds for event in trials]
    assert all(later <= earlier for earlier, later in itertools.pairwise(incumbents))  # type: ignore[operator]
    last = trials[-1]
    assert last.incumbent_seconds == min(event.trial.cost for event in trials)
    assert last.gflops == pytest.approx(task.workload.flops / last.incumbent_seconds / 1e9)
    assert last.eta == 0
    assert trials[9].eta == pytest.approx(trials[9].elapsed)
    failed = [event for event in trials if event.trial.failure]
    assert all(event.message == "took more than 30 s" for event in failed)


def test_guided_search_through_the_loop_beats_random(task: TuningTask, tmp_path: Path) -> None:
    best = {}
    for strategy in ("random", "evolution"):
        with Database.open(tmp_path / f"{strategy}.db") as database:
            outcome = Run(database, SimulatedPipeline(landscape))([task], "64 trials", strategy=strategy).tasks[0]
            assert outcome.best is not None
            best[strategy] = outcome.best.cost
    assert best["evolution"] < best["random"]


def test_a_second_run_continues_where_the_first_stopped(task: TuningTask, database: Database) -> None:
    first, second = (Run(database, SimulatedPipeline(landscape)) for _ in range(2))
    first([task], "20 trials", strategy="evolution", finalists=0)
    outcome = second([task], "50 trials", strategy="evolution", finalists=0)
    assert outcome.new_trials == 30
    assert outcome.tasks[0].trials == 50
    earlier = {candidate.config for candidate in first.pipeline.measured}
    assert not earlier & {candidate.config for candidate in second.pipeline.measured}
    resumed = second.told(TaskResumed)[0]
    assert resumed.trials == 20
    assert second.pipeline.incumbents == [resumed.incumbent_seconds]
    again = Run(database, SimulatedPipeline(landscape))
    assert again([task], "50 trials").new_trials == 0
    assert again.pipeline.measured == []


def test_ctrl_c_keeps_every_finished_trial_and_the_next_run_resumes(task: TuningTask, database: Database) -> None:
    run = Run(database, SimulatedPipeline(landscape, interrupt_after=13))
    outcome = run([task], "40 trials")
    assert outcome.interrupted
    assert run.pipeline.closed
    assert run.pipeline.compared == []
    assert outcome.new_trials == len(list(database.trials(task.workload.key))) == 13
    assert database.sessions()[0].state is SessionState.INTERRUPTED
    resumed = Run(database, SimulatedPipeline(landscape))([task], "40 trials")
    assert (resumed.new_trials, resumed.interrupted) == (27, False)


def test_a_broken_pipeline_marks_the_session_and_passes_the_error_on(task: TuningTask, database: Database) -> None:
    def full(candidate: MeasureInput) -> float:
        raise DatabaseError("disk full")

    with pytest.raises(DatabaseError, match="disk full"):
        Run(database, SimulatedPipeline(full))([task], "40 trials")
    assert database.sessions()[0].state is SessionState.INTERRUPTED


def test_records_of_the_same_sources_count_without_a_build(
    task: TuningTask, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = "1" * 16
    monkeypatch.setattr(recording, "version_mark", lambda workload, config: f"+{version}")
    Run(database, SimulatedPipeline(landscape))([task], "20 trials", finalists=0)
    again = Run(database, SimulatedPipeline(landscape))
    again([task], "21 trials", finalists=0)
    assert again.told(TaskResumed)[0].trials == 20 and again.pipeline.built == []
    version = "2" * 16
    changed = Run(database, SimulatedPipeline(landscape))
    changed([task], "22 trials", finalists=0)
    assert changed.told(TaskResumed)[0].trials == 21 and len(changed.pipeline.built) == 1


def test_records_of_other_code_do_not_count(task: TuningTask, database: Database) -> None:
    Run(database, SimulatedPipeline(landscape))([task], "20 trials", finalists=0)
    changed = Run(database, SimulatedPipeline(landscape, code=lambda config: "new" + config.key))
    outcome = changed([task], "20 trials", finalists=0)
    assert changed.told(RecordsOutdated)[0].trials == 20
    assert outcome.new_trials == 20
    hashes = {record.ir_hash[:3] for record in database.trials(task.workload.key) if record.seconds}
    assert hashes == {"new"}


def test_finalists_run_in_turn_with_the_default_and_luck_does_not_win(task: TuningTask, database: Database) -> None:
    lucky = Counter[str]()

    def measured_once(candidate: MeasureInput) -> float | Failure:
        seconds = landscape(candidate)
        if not isinstance(seconds, float) or candidate.config == task.space.default():
            return seconds
        lucky[candidate.config.key] += 1
        return seconds * (0.2 if len(lucky) % 5 == 0 else 1.0)

    run = Run(database, SimulatedPipeline(measured_once, true_cost=landscape))
    outcome = run([task], "40 trials").tasks[0]
    default = task.space.default().key
    assert all(contenders[0] == default and len(contenders) <= 10 for contenders in run.pipeline.compared)
    assert outcome.best is not None
    assert outcome.best.cost == synthetic_trial(outcome.best.config).cost
    best = database.best(task.workload.key, TARGET.key, TARGET.to_json()).record
    assert best is not None
    assert best.seconds == outcome.best.cost
    compared = run.told(FinalistsCompared)[0]
    assert outcome.best == compared.trials[0]
    assert best.config_key in {key for contenders in run.pipeline.compared for key in contenders}


def test_nothing_slower_than_the_default_is_ever_best(task: TuningTask, database: Database) -> None:
    default = task.space.default()

    def measured_once(candidate: MeasureInput) -> float:
        return 2.0 if candidate.config == default else 1.0 + int(candidate.config.key, 16) / 16**16

    def in_turn(candidate: MeasureInput) -> float:
        return 1.5 if candidate.config == default else 1.6

    run = Run(database, SimulatedPipeline(measured_once, true_cost=in_turn))
    outcome = run([task], "30 trials").tasks[0]
    assert outcome.best is not None and (outcome.best.config, outcome.speedup) == (default, 1.0)
    assert (outcome.default_alone, outcome.default_seconds, outcome.moved) == (2.0, 1.5, True)
    record = database.best(task.workload.key, TARGET.key, TARGET.to_json()).record
    assert record is not None
    assert record.config_key == default.key


def test_what_was_disturbed_is_timed_again_before_it_counts(task: TuningTask, database: Database) -> None:
    """As when one kernel was recorded as 22.2, 9.2 and 0.1 µs beside other programs."""

    def glitches(candidate: MeasureInput) -> float | Failure:
        seconds = landscape(candidate)
        return seconds * 0.01 if isinstance(seconds, float) and is_disturbed(candidate.config) else seconds

    def is_disturbed(config: Config) -> bool:
        return int(config.key, 16) % 3 == 0 and config != task.space.default()

    run = Run(database, SimulatedPipeline(glitches, true_cost=landscape, disturbed=is_disturbed))
    outcome = run([task], "40 trials", finalists=0).tasks[0]
    assert outcome.best is not None and not outcome.best.disturbed
    best = database.best(task.workload.key, TARGET.key, TARGET.to_json()).record
    assert best is not None and not best.disturbed and best.seconds == outcome.best.cost
    assert any(record.disturbed and (record.seconds or 0) < best.seconds for record in database.trials())

    settled = Run(database, SimulatedPipeline(glitches, true_cost=landscape, disturbed=is_disturbed))
    again = settled([task], "60 trials").tasks[0]
    assert again.best is not None
    assert again.best.cost == synthetic_trial(again.best.config).cost, "as found in turn, not in the glitch"


def test_a_best_that_was_disturbed_is_timed_again_without_new_trials(task: TuningTask, database: Database) -> None:
    pipeline = SimulatedPipeline(landscape, disturbed=lambda config: True)
    assert Run(database, pipeline)([task], "20 trials", finalists=0).new_trials == 20
    before = database.best(task.workload.key, TARGET.key, TARGET.to_json())
    assert before.record is not None and before.record.disturbed
    run = Run(database, SimulatedPipeline(landscape))
    assert run([task], "20 trials").new_trials == 0
    assert run.pipeline.compared
    after = database.best(task.workload.key, TARGET.key, TARGET.to_json())
    assert after.record is not None and not after.record.disturbed
    quiet = Run(database, SimulatedPipeline(landscape))
    assert quiet([task], "20 trials").new_trials == 0
    assert not quiet.pipeline.compared, "once is enough"


def test_a_default_that_was_disturbed_is_timed_again_before_all_others(task: TuningTask, database: Database) -> None:
    default, seen = task.space.default(), list[Config]()

    def first_time(config: Config) -> bool:
        seen.append(config)
        return config == default and seen.count(config) == 1

    run = Run(database, SimulatedPipeline(landscape, disturbed=first_time))
    outcome = run([task], "12 trials", finalists=0)
    assert outcome.new_trials == 12
    assert seen[0] == default and seen.count(default) == 2 and default in seen[1 : run.pipeline.ahead + 1]
    again = [record.disturbed for record in database.trials() if record.config_key == default.key]
    assert again == [False], "the later one is kept"


def test_comparing_ends_when_the_default_is_clearly_beaten(task: TuningTask, database: Database) -> None:
    default = task.space.default()

    def compared(in_turn: float) -> int:
        def once(candidate: MeasureInput) -> float:
            return 2.0 if candidate.config == default else 1.0 + int(candidate.config.key, 16) / 16**16 / 10

        def slower(candidate: MeasureInput) -> float:
            return 2.0 if candidate.config == default else in_turn  # each finalist falls behind those left out

        pipeline = SimulatedPipeline(once, true_cost=slower)
        with Database.open(database.path.with_suffix(f".{in_turn}")) as fresh:
            Run(fresh, pipeline)([task], "60 trials")
        return len(pipeline.compared)

    assert compared(1.5) == 2
    assert compared(1.99) > 4
    assert compared(1.0) == 1


def test_equal_code_is_compared_once(task: TuningTask, database: Database) -> None:
    default = task.space.default()
    run = Run(
        database,
        SimulatedPipeline(
            lambda c: 2.0 if c.config == default else 1.0, code=lambda c: "d" if c == default else "same"
        ),
    )
    outcome = run([task], "20 trials").tasks[0]
    assert run.pipeline.compared == [["d", "same"]]
    assert outcome.speedup == 2.0


def test_a_comparison_that_fails_is_reported_and_changes_nothing(task: TuningTask, database: Database) -> None:
    crash = Failure("crash", "worker died")
    run = Run(database, SimulatedPipeline(landscape, true_cost=lambda candidate: crash))
    outcome = run([task], "30 trials").tasks[0]
    assert run.told(FinalistsCompared)[0].problem == "the default does not run again: crash: worker died"
    assert outcome.best is not None
    assert database.best(task.workload.key, TARGET.key, TARGET.to_json()).record is not None


def test_identical_failures_in_a_row_stop_the_task_with_one_line(space: ConfigSpace, database: Database) -> None:
    bad, good = make_task(space, channels=8), make_task(space, channels=16)

    def cost(candidate: MeasureInput) -> float | Failure:
        if candidate.workload == bad.workload:
            return Failure("compile", "LLVM ERROR:\ncannot select")
        return landscape(candidate)

    run = Run(database, SimulatedPipeline(cost))
    outcome = run([bad, good], "60 trials", same_failures=6)
    stopped = run.told(TaskStopped)
    assert len(stopped) == 1
    assert stopped[0].reason.startswith("6 trials in a row failed alike: compile: LLVM ERROR: cannot select; for exam")
    assert "\n" not in stopped[0].reason
    assert outcome.tasks[0].best is None
    assert 6 <= outcome.tasks[0].trials <= 6 + run.pipeline.ahead
    assert outcome.new_trials == 60
    # The next run may try again: what was wrong may have been mended.
    assert Run(database, SimulatedPipeline(landscape))([bad], "20 trials").new_trials > 0


def test_different_failures_do_not_stop_a_task(task: TuningTask, database: Database) -> None:
    run = Run(database, SimulatedPipeline(lambda c: Failure("crash", c.config.key)))
    assert run([task], "30 trials", same_failures=6).new_trials == 30


def test_kernels_that_were_not_run_are_recorded_and_counted_apart(task: TuningTask, database: Database) -> None:
    def cost(candidate: MeasureInput) -> float | Failure:
        if candidate.config.get_int("oc") == 4:
            return Failure("spills", "not run: 90 spills for 30 multiply-adds")
        return landscape(candidate)

    run = Run(database, SimulatedPipeline(cost))
    outcome = run([task], "60 trials", same_failures=2, finalists=0).tasks[0]
    records = list(database.trials(task.workload.key, TARGET.key))
    skipped = [record for record in records if record.failure_kind == "spills"]
    assert outcome.skipped == len(skipped) > 10
    assert outcome.failed == sum(record.failure_kind == "timeout" for record in records)
    assert run.told(TaskStopped) == []  # many in a row are no sign of something broken
    assert {
        trial.trial.config.get_int("oc") for trial in run.told(TrialFinished) if trial.trial.failure == "spills"
    } == {4}


def test_a_task_without_gain_stops_early(task: TuningTask, database: Database) -> None:
    run = Run(database, SimulatedPipeline(lambda candidate: 1.0))
    outcome = run([task], "100 trials", patience=12)
    assert 12 < outcome.new_trials <= 13 + run.pipeline.ahead
    assert outcome.tasks[0].stopped == run.told(TaskStopped)[0].reason == "no gain in 12 trials"


def test_a_small_space_ends_the_search(database: Database) -> None:
    task = make_task(ConfigSpace((Choice("a", (1, 2, 3)),)))
    run = Run(database, SimulatedPipeline(lambda candidate: 1.0))
    assert run([task], "100 trials").new_trials == 3
    assert run.told(TaskStopped)[0].reason == "every config of its space was tried"


def test_a_time_budget_ends_the_search_and_leaves_time_for_the_finalists(task: TuningTask, database: Database) -> None:
    run = Run(database, SimulatedPipeline(landscape))
    outcome = run([task], "30s")
    assert 29 <= outcome.new_trials <= 29 + run.pipeline.ahead
    assert 0 <= run.told(TrialFinished)[10].eta <= 30 - 11  # type: ignore[operator]


def test_several_tasks_get_default_and_warmup_and_the_heavy_one_gets_most(
    space: ConfigSpace, database: Database
) -> None:
    tasks = [make_task(space, 8), make_task(space, 16, weight=10.0), make_task(space, 24)]
    run = Run(database, SimulatedPipeline(landscape))
    outcome = run(tasks, "150 trials", warmup=8)
    first = run.pipeline.measured[:3]
    assert {candidate.config for candidate in first} == {tasks[0].space.default()}
    assert len({candidate.workload for candidate in first}) == 3
    warm = Counter(candidate.workload for candidate in run.pipeline.measured[:24])
    assert set(warm.values()) == {8}
    light, heavy, other = (result.trials for result in outcome.tasks)
    assert heavy > 1.5 * max(light, other)
    assert min(light, other) > 8


def test_what_was_best_for_the_same_anchor_or_another_target_is_tried_early(
    task: TuningTask, database: Database
) -> None:
    outcome = Run(database, SimulatedPipeline(landscape))([task], "30 trials", finalists=0).tasks[0]
    assert outcome.best is not None
    assert outcome.best.config != task.space.default()
    fused = parse_workload(f"{LINE} + relu")
    elsewhere = Target.parse("x86 -mcpu=haswell -num-cores=2")
    for other in (replace(task, workload=fused), replace(task, target=elsewhere)):
        run = Run(database, SimulatedPipeline(landscape))
        run([other], "5 trials", finalists=0)
        assert [c.config for c in run.pipeline.measured[:2]] == [task.space.default(), outcome.best.config]


def test_the_time_is_accounted_for(task: TuningTask, database: Database) -> None:
    run = Run(database, SimulatedPipeline(landscape))
    outcome = run([task], "20 trials", finalists=0)
    worked = sum(event.trial.seconds is not None for event in run.told(TrialFinished))
    assert outcome.seconds == 20
    assert outcome.time["wait"] == 20
    assert outcome.time["build"] == 0.25 * 20
    assert outcome.time["run"] == 0.5 * worked
    assert outcome.shares()["wait"] == 1.0
    assert outcome.trials_per_second == 1.0


def test_wrong_calls_are_refused(task: TuningTask, database: Database) -> None:
    run = Run(database, SimulatedPipeline(landscape))
    with pytest.raises(ConfigError, match="no task was given"):
        run([], "10 trials")
    with pytest.raises(ConfigError, match="is given twice"):
        run([task, task], "10 trials")
    with pytest.raises(ConfigError, match="unknown search strategy"):
        run([task], "10 trials", strategy="magic")
    assert database.sessions() == []


def test_a_resumed_search_does_not_draw_the_same_again(database: Database) -> None:
    task = TuningTask.of(parse_workload(LINE), TARGET)
    assert task.space.size > ENUMERABLE
    for trials in (120, 130):  # more than the draws after which a space counts as exhausted
        run = Run(database, SimulatedPipeline(lambda candidate: 1.0 + int(candidate.config.key, 16) / 16**16))
        outcome = run([task], f"{trials} trials", finalists=0)
        assert [event.reason for event in run.told(TaskStopped)] == []
    assert outcome.tasks[0].new == 10


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Space]:
    """The spaces of which the untuned choice was looked for, each time."""
    spaces, default = list[Space](), TaskSpace.default

    def finding(space: TaskSpace) -> Config:
        spaces.append(space)
        return default(space)

    monkeypatch.setattr(TaskSpace, "default", finding)
    return spaces


def six_tasks(space: ConfigSpace) -> list[TuningTask]:
    return [make_task(space, channels) for channels in (8, 16, 24, 32, 40, 48)]


def test_a_tasks_untuned_choice_is_found_when_it_is_its_turn(
    database: Database, space: ConfigSpace, found: list[Space]
) -> None:
    seen = list[int]()
    tasks, options = six_tasks(space), TuneOptions(strategy="random", finalists=0)
    pipeline, budget = SimulatedPipeline(landscape, ahead=1), Budget(trials=6)
    callbacks = [lambda event: seen.append(len(found))]
    tune(tasks, pipeline=pipeline, database=database, budget=budget, options=options, callbacks=callbacks)
    assert seen == [1, 2, 3, 4, 5, 6]


def test_who_stops_early_waits_for_no_untuned_choice(
    database: Database, space: ConfigSpace, found: list[Space]
) -> None:
    pipeline = SimulatedPipeline(landscape, ahead=1, interrupt_after=2)
    outcome = tune(six_tasks(space), pipeline=pipeline, database=database, budget=Budget(trials=60))
    assert outcome.interrupted and outcome.new_trials == 2
    assert len(set(map(id, found))) <= 3  # of two trials, and of the one that was under way


def test_what_the_model_expected_is_kept_with_the_trials(database: Database, task: TuningTask) -> None:
    def run(trials: int) -> TuneOutcome:
        pipeline = SimulatedPipeline(landscape)
        options = TuneOptions(warmup=4)
        return tune([task], pipeline=pipeline, database=database, budget=Budget(trials=trials), options=options)

    def expected() -> dict[str, float | None]:
        return {record.config: record.predicted for record in database.trials(task.workload.key, task.target.key)}

    assert run(12).foresight is None and set(expected().values()) == {None}  # before the model is asked
    outcome = run(60)
    found = expected()
    assert sum(seconds is not None for seconds in found.values()) >= 30
    assert all(seconds == rounded(seconds) for seconds in found.values())  # in figures that mean something
    seen = outcome.foresight
    assert seen is not None and seen.trials >= 30 and 0 <= seen.error < 0.5 and 0.3 < seen.order <= 1
    again = run(64)
    assert all(expected()[config] == seconds for config, seconds in found.items())  # finalists were timed again
    assert again.foresight is not None and again.foresight.trials > seen.trials
