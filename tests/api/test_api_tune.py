"""What `autotune.tune` takes, and how the verdict on a whole model is heeded."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.api.tuning import _budget, _subject
from autotune.api.verdict import ModelVerdict, combined
from autotune.compiler.compile import NOT_FASTER, compile_graph
from autotune.compiler.tasks import kernel_tasks, model_key
from autotune.errors import ConfigError, DatabaseError, InputError, ModelError, WorkloadError
from autotune.graph import load_model, optimize, partition
from autotune.measure.peaks import Peak
from autotune.ops import parse_workload
from autotune.records import Database, Plan, Tier
from autotune.search import EFFORTS, Budget, TuneOptions
from autotune.target import Target
from tests.cli.cli_models import conv_model, save
from tests.compiler.test_compiler_bucketed import attention

TARGET = "native -num-cores=1"


def test_a_budget_is_a_time_or_a_number_or_both() -> None:
    assert _budget(None, None, "5m") == Budget(seconds=300)
    assert _budget("90s", None, "5m") == _budget(90, None, "5m") == Budget(seconds=90)
    assert _budget(None, 64, "5m") == Budget(trials=64)
    assert _budget("90s", 64, "5m") == Budget(trials=64, seconds=90)
    with pytest.raises(ConfigError, match="no budget"):
        _budget("soon", None, "5m")


def test_text_is_an_operator_or_a_file(tmp_path: Path) -> None:
    workload, target = parse_workload("matmul a=8,8 b=8,8"), Target.parse(TARGET)
    assert _subject("matmul a=8,8 b=8,8", target) == workload
    assert _subject(workload, target) == workload
    path = save(conv_model(), tmp_path / "a=b.onnx")
    for given in (str(path), path, path.read_bytes()):
        found = _subject(given, target)
        assert isinstance(found, tuple) and len(found) == 1 and found[0].feeds["x"].shape == (1, 3, 8, 8)
    with pytest.raises(WorkloadError, match="unknown operator"):
        _subject("mtmul a=8,8 b=8,8", target)
    with pytest.raises(ModelError, match="nowhere.onnx"):
        _subject("nowhere.onnx", target)
    with pytest.raises(InputError, match="shapes"):
        _subject("matmul a=8,8 b=8,8", target, {"a": (1,)})


def test_tuning_without_a_database_is_refused() -> None:
    with pytest.raises(DatabaseError, match="a database is needed"):
        autotune.tune("matmul a=8,8 b=8,8", TARGET, False, trials=1)


def test_what_a_full_disk_or_an_older_autotune_left_is_gone_on_with(tmp_path: Path) -> None:
    """An empty file, as an upgrade or a creation that met a full disk leaves it, and a file of an older schema."""
    empty, older = tmp_path / "empty.sqlite", tmp_path / "older.sqlite"
    empty.touch()
    raw = sqlite3.connect(older)
    raw.executescript((Path(__file__).parents[1] / "records" / "schemas" / "0006_disturbed.sql").read_text())
    raw.close()
    for path in (empty, older):
        for database in (path, autotune.Layered(path)):
            autotune.tune("relu data=8", TARGET, database, trials=1)
        with Database.open(path, read_only=True) as opened:
            assert opened.workload_keys(parse_workload("relu data=8").key)


def test_the_library_call_tunes_and_best_schedule_finds_it(tmp_path: Path) -> None:
    text = "conv2d data=1,16,6,6 weight=16,16,3,3 pad=1"
    events: list[str] = []
    with Database.open(tmp_path / "db.sqlite") as database:
        found = autotune.tune(
            text, TARGET, database, trials=3, strategy="random", callbacks=[lambda e: events.append(type(e).__name__)]
        )
        assert found.search.new_trials == 3
        assert events.count("TrialFinished") == 3
        assert events[0] == "Phase"
        best = autotune.best_schedule(text, TARGET, database)
    assert best.tier is Tier.EXACT
    (task,) = found.search.tasks
    assert task.best is not None
    assert (best.config, best.seconds) == (task.best.config, task.best.seconds)


def test_a_peak_in_doubt_is_measured_again_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = [Peak(50.0), Peak(40.0, "other programs ran")]
    monkeypatch.setattr("autotune.measure.runner.Runner.peak", lambda self, patience: peaks.pop())
    found = autotune.tune("relu data=64", TARGET, tmp_path / "db.sqlite", trials=1)
    assert found.peak == Peak(50.0)
    assert not peaks


def test_a_model_found_slower_when_tuned_stays_untuned(tmp_path: Path) -> None:
    graph, target = optimize(load_model(save(conv_model(), tmp_path / "m.onnx"))), Target.parse(TARGET)
    workload = next(task.workload for task in kernel_tasks(graph, target) if task.workload.anchor is not None)
    with Database.open(tmp_path / "db.sqlite") as database:
        autotune.tune(workload, target, database, trials=2, strategy="random")

        def tuned(heed: bool = True) -> list[str]:
            compiled = compile_graph(graph, target, database, heed_plan=heed)
            return [kernel.reason for kernel in compiled.kernels if kernel.workload == workload]

        assert [reason.partition(" beside")[0] for reason in tuned()] == ["measured on this target"]
        plan = Plan(
            model_key=model_key(partition(graph)), target_key=target.key, tuned=False,
            tuned_seconds=2e-3, untuned_seconds=1e-3, created=1.0,
        )  # fmt: skip
        database.set_plan(plan)
        assert database.plan(plan.model_key, plan.target_key) == plan
        assert tuned() == [NOT_FASTER]
        assert [reason.partition(" beside")[0] for reason in tuned(heed=False)] == ["measured on this target"]
        other = target.with_threads(2)
        assert database.plan(plan.model_key, other.key) is None, "another target has a verdict of its own"
        database.set_plan(replace(plan, tuned=True))
        assert [reason.partition(" beside")[0] for reason in tuned()] == ["measured on this target"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_key": ""}, "model_key"),
        ({"tuned_seconds": 0.0}, "tuned_seconds"),
        ({"created": float("nan")}, "created"),
    ],
)
def test_a_plan_is_checked(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "model_key": "0" * 16, "target_key": "t", "tuned": True, "tuned_seconds": 1.0, "untuned_seconds": 1.0,
        "created": 1.0,
    }  # fmt: skip
    with pytest.raises(DatabaseError, match=message):
        Plan(**{**good, **change})


def test_the_effort_reaches_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[TuneOptions, Budget]] = []

    def search(tasks: object, *, options: TuneOptions, budget: Budget, **_: object) -> object:
        seen.append((options, budget))
        raise KeyboardInterrupt

    monkeypatch.setattr("autotune.api.tuning.search", search)
    for effort in EFFORTS:
        with pytest.raises(KeyboardInterrupt):
            autotune.tune("relu data=64", TARGET, tmp_path / "t.db", effort=effort)
    assert [options.finalists for options, _ in seen] == [effort.finalists for effort in EFFORTS.values()]
    limits = [budget.seconds or 0.0 for _, budget in seen]
    assert limits == sorted(limits) and limits[-1] > 10 * limits[0]


def test_ranges_of_shapes_are_programs_with_weights() -> None:
    target, model = Target.parse(TARGET), attention()
    shapes = [
        autotune.ShapeRange({"batch": (1,), "length": (range(15, 17),)}, 3.0),
        autotune.ShapeRange({"batch": (2,), "length": (16,)}, 1.0),
    ]
    found = _subject(model, target, shapes)
    assert isinstance(found, tuple)
    assert [(one.feeds["x"].shape, one.weight) for one in found] == [((2, 16, 16), 0.25), ((1, 16, 16), 0.75)]
    assert [int(one.feeds[name]) for one in found for name in one.feeds if name != "x"] == [16, 2, 16, 1]
    arrays = [array for one in found for array in one.graph.constants.values()]
    contents = {(array.shape, array.tobytes()) for array in arrays}
    assert len({id(array) for array in arrays}) == len(contents) < len(arrays)
    with pytest.raises(InputError, match="inputs have shapes of their own"):
        _subject(model, target, {"batch": (1,), "length": (range(8, 17),)}, {"x": np.zeros((1, 8, 16), np.float32)})


def test_what_often_runs_counts_more() -> None:
    often = ModelVerdict(1.0, 2.0, 2.0, True, 0.0, weight=0.75)
    found = combined([often, ModelVerdict(4.0, 4.0, 1.0, True, 0.0, weight=0.25)])
    assert (found.tuned_seconds, found.untuned_seconds) == (1.75, 2.5)
    assert found.speedup == pytest.approx(2.5 / 1.75)


def test_a_time_that_is_over_leaves_programs_to_the_next_call_the_heaviest_come_first(tmp_path: Path) -> None:
    shapes = [
        autotune.ShapeRange({"batch": (2,), "length": (16,)}, 1.0),
        autotune.ShapeRange({"batch": (1,), "length": (16,)}, 9.0),
    ]
    report = autotune.tune(attention(), TARGET, tmp_path / "db.sqlite", budget=0.01, shapes=shapes)
    assert report.untimed == 1
    assert [verdict.weight for verdict in report.programs] == [0.9]
    assert report.to_dict()["untimed"] == 1
