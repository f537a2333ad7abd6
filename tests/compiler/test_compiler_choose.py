"""Which record a kernel gets: the fastest whose config today's templates know, else the default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.compiler.choose import Choice, Chooser
from autotune.compiler.compile import compile_graph
from autotune.errors import ScheduleError
from autotune.graph import Graph, Node, Output, Value, evaluate_graph
from autotune.ops import Workload, parse_workload
from autotune.records import Database, Tier, TuningRecord
from autotune.schedule import Schedule
from autotune.search_spaces import Config, Interface, default_config
from autotune.target import Target

WORKLOAD = parse_workload("conv2d data=1,16,6,6 weight=16,16,3,3 pad=1")
TARGET = Target.parse("x86 -mcpu=haswell -num-cores=1")
DEFAULT = default_config(WORKLOAD, TARGET)


def record(
    config: Config, seconds: float, target: Target = TARGET, session: str | None = None, created: float = 1.0,
    disturbed: bool = False,
) -> TuningRecord:  # fmt: skip
    return TuningRecord(
        workload_key=WORKLOAD.key, workload=WORKLOAD.to_json(), target_key=target.key, target=target.to_json(),
        config_key=config.key, config=config.to_json(), template=config.template or "?", seconds=seconds, verified=True,
        session_id=session, created=created, disturbed=disturbed,
    )  # fmt: skip


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database.open(tmp_path / "db.sqlite")


def stale(number: int) -> Config:
    return Config.from_json(f'{{"template":"conv2d.direct","knob_of_{number}":1}}')


def test_the_fastest_record_is_taken(database: Database) -> None:
    database.add(record(DEFAULT, 1e-3))
    choice = Chooser(TARGET, database)(WORKLOAD)
    assert (choice.tier, choice.config, choice.seconds, choice.tuned) == (Tier.EXACT, DEFAULT, 1e-3, True)


OTHER = Config.from_json('{"template":"plain","shared":false}')


def test_a_trial_a_little_faster_than_the_default_is_luck_until_both_were_timed_in_turn(database: Database) -> None:
    database.add(record(DEFAULT, 1e-3, session="s", created=1.0))
    database.add(record(OTHER, 0.97e-3, session="s", created=2.0))
    choice = Chooser(TARGET, database)(WORKLOAD)
    assert (choice.tier, choice.config, choice.seconds) == (Tier.EXACT, DEFAULT, 1e-3)
    for config, seconds in ((DEFAULT, 1e-3), (OTHER, 0.99e-3)):
        database.add(record(config, seconds, session="s", created=3.0))
    assert Chooser(TARGET, database)(WORKLOAD).config == OTHER


def test_a_lucky_trial_does_not_replace_what_was_timed_in_turn(database: Database) -> None:
    """Nor has the default to be found for that, which takes a while."""
    third = OTHER.replace(shared=True)
    for config, seconds in ((DEFAULT, 1e-3), (OTHER, 0.9e-3)):
        database.add(record(config, seconds, session="s", created=3.0))
    database.add(record(third, 0.88e-3, session="s", created=2.0))
    chooser = Chooser(TARGET, database, untuned=lambda *_: pytest.fail("looked for the default"))
    assert chooser(WORKLOAD).config == OTHER


def test_what_was_timed_in_turn_beside_others_is_found_behind_slow_trials_in_quiet(database: Database) -> None:
    quiet = (OTHER.replace(shared=True), OTHER.replace(shared="?"))
    for config, seconds in ((DEFAULT, 1e-3), (OTHER, 0.9e-3)):
        database.add(record(config, seconds, session="s", created=3.0, disturbed=True))
    for number, (config, seconds) in enumerate(zip(quiet, (1.1e-3, 4e-3), strict=True)):
        database.add(record(config, seconds, session="s", created=2.0 + number / 10))
    assert Chooser(TARGET, database)(WORKLOAD).config == OTHER


def test_a_trial_far_faster_than_the_default_is_used_as_it_is(database: Database) -> None:
    database.add(record(DEFAULT, 1e-3, session="s", created=1.0))
    database.add(record(OTHER, 0.9e-3, session="s", created=2.0))
    assert Chooser(TARGET, database)(WORKLOAD).config == OTHER


def test_a_config_of_other_templates_is_passed_over(database: Database) -> None:
    database.add_many([record(stale(n), 1e-3 + 1e-6 * n) for n in range(5)])
    database.add(record(Config.from_json('{"template":"conv2d.forgotten"}'), 0.9e-3))
    database.add(record(DEFAULT, 1.1e-3))
    choice = Chooser(TARGET, database)(WORKLOAD)
    assert (choice.tier, choice.config) == (Tier.EXACT, DEFAULT)


def test_the_rest_of_an_outdated_search_is_not_taken(database: Database) -> None:
    """The only valid record is ten times slower than what the search had found: the default is likely to be better."""
    slow = Config.from_json('{"template":"plain","shared":false}')
    database.add(record(stale(0), 1e-4))
    database.add(record(slow, 1e-3))
    choice = Chooser(TARGET, database)(WORKLOAD)
    assert (choice.tier, choice.config) == (Tier.COMPATIBLE, DEFAULT)
    assert "tune again" in choice.reason


def test_only_configs_of_other_templates_leave_the_default_and_say_so(database: Database) -> None:
    database.add(record(stale(0), 1e-6))
    choice = Chooser(TARGET, database)(WORKLOAD)
    assert (choice.tier, choice.config, choice.tuned) == (Tier.COMPATIBLE, DEFAULT, False)
    assert "tune again" in choice.reason


def test_a_record_of_another_thread_count_is_not_applied(database: Database) -> None:
    other = replace(TARGET, num_threads=4)
    database.add(record(DEFAULT, 1e-3, other))
    choice = Chooser(TARGET, database)(WORKLOAD)
    assert (choice.tier, choice.tuned) == (Tier.COMPATIBLE, False)
    assert "num_threads 4, here 1" in choice.reason


def test_without_a_database_the_reason_is_the_caller_s() -> None:
    assert Chooser(TARGET, None, "not wanted")(WORKLOAD).reason == "not wanted"


def test_a_default_that_does_not_build_gives_way_to_the_next_template(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Choice.schedule

    def refuse(choice: Choice, workload: Workload, target: Target, interface: Interface | None = None) -> Schedule:
        if choice.config.template == "conv2d.direct" and interface is not None:
            raise ScheduleError("not in these layouts")
        return schedule(choice, workload, target, interface)

    monkeypatch.setattr(Choice, "schedule", refuse)
    weight = np.random.default_rng(0).standard_normal((8, 8, 1, 1)).astype(np.float32)
    attrs = (("dilation", (1, 1)), ("groups", 1), ("pad", (0,) * 4), ("stride", (1, 1)))
    node = Node("conv2d", ("x", "w"), Value("y", "f32", (1, 8, 5, 5)), attrs)
    graph = Graph("g", (Value("x", "f32", (1, 8, 5, 5)),), (node,), (Output("y", "y"),), {"w": weight})
    compiled = compile_graph(graph, Target.parse("native -num-cores=1"))
    reports = [report for report in compiled.kernels if "does not build: not in these layouts" in report.reason]
    assert len(reports) == 1 and "conv2d.direct" not in reports[0].config
    x = np.random.default_rng(1).standard_normal((1, 8, 5, 5)).astype(np.float32)
    np.testing.assert_allclose(compiled.run({"x": x})[0], evaluate_graph(graph, {"x": x})["y"], atol=1e-5)
