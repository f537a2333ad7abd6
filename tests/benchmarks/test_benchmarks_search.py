"""Recording a space, continuing the record, and replaying it with every strategy and model."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import MeasureError
from autotune.measure.builder import Builder
from autotune.measure.runner import Runner
from autotune.ops import parse_workload
from autotune.search.space_recording import SpaceRecording
from autotune.search.strategies import STRATEGIES
from autotune.search.task import TuningTask
from autotune.search.trial import Trial
from autotune.target import Target
from benchmarks import cost_model, record_space, search, whole_model

LINE = "matmul a=16,16 b=16,16"


@pytest.fixture(scope="module")
def spaces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small task, recorded in two goes."""
    out = tmp_path_factory.mktemp("spaces")
    for points in (30, 70):
        assert record_space.main(["--out", str(out), "--op", LINE, "--points", str(points), "--minutes", "2"]) == 0
    return out


def test_every_task_has_a_space() -> None:
    target = Target.parse("x86 -mcpu=znver4 -num-cores=1")
    for line in record_space.TASKS.values():
        assert TuningTask.of(parse_workload(line), target).space.size > 1
    assert len(record_space.TASKS) >= 16


def test_a_recording_grows_and_is_settled(spaces: Path) -> None:
    (path,) = spaces.glob("*.jsonl.gz")
    recording = SpaceRecording.load(path)
    space = TuningTask.of(parse_workload(LINE), Target.parse("native -num-cores=1")).space
    assert len(recording.points) == 70
    assert recording.settled and not recording.complete
    assert recording.feature_names == space.feature_names
    assert [key in recording.points for key in recording.defaults] == [True] * len(space.defaults())
    worked = [point for point in recording.points.values() if point.trial.seconds is not None]
    assert len(worked) > 50
    assert all(len(point.ir_hash) == 16 and json.loads(point.steps) for point in worked)
    assert recording.about["versions"]


def test_what_seemed_faster_than_can_be_does_not_stay_the_best(spaces: Path) -> None:
    (path,) = spaces.glob("*.jsonl.gz")
    recording, target = SpaceRecording.load(path), Target.parse("native -num-cores=1")
    slow = max((p for p in recording.points.values() if p.trial.seconds), key=lambda p: p.trial.cost)
    wrong = replace(slow, trial=Trial(slow.config, 1e-12))
    with Runner(target) as runner, Builder(1) as builder:
        task = TuningTask.of(parse_workload(LINE), target)
        found = record_space.settle(recording.with_points(wrong, settled=False), task, builder, runner, nullcontext)
    assert found.settled and found.points[slow.config.key].trial.cost > 1e-9
    assert len(found.points) == len(recording.points)


def test_another_task_in_the_file_is_refused(spaces: Path, tmp_path: Path) -> None:
    (path,) = spaces.glob("*.jsonl.gz")
    task = TuningTask.of(parse_workload("matmul a=32,32 b=32,32"), Target.parse("native -num-cores=1"))
    with pytest.raises(MeasureError, match="holds another space than"):
        record_space.load_or_begin(path, "x", "matmul a=32,32 b=32,32", task)
    assert not record_space.load_or_begin(tmp_path / "none", "x", "matmul a=32,32 b=32,32", task).points


def test_strategies_are_replayed(spaces: Path, tmp_path: Path) -> None:
    figures = tmp_path / "search.json"
    words = [str(spaces), "--seeds", "2", "--trials", "32", "--json", str(figures)]
    assert search.main([*words, "--strategy", "guided", "--strategy", "random"]) == 0
    found = json.loads(figures.read_text())
    rows = found["tables"]["strategies"]
    assert [row["strategy"] for row in rows] == ["guided", "random"]
    for row in rows:
        assert 0 < row["after 16"] <= row["after 32"] <= 1
        assert row["points"] == 70
    assert set(STRATEGIES) > {"guided", "random"}


def test_the_number_of_trials_is_a_median_that_may_not_exist() -> None:
    slow, fast, never = [0.5] * 5 + [1.0], [0.99], [0.9] * 9
    assert search.reached([fast, slow, slow], 0.98) == 6
    assert search.reached([fast, never, never], 0.98) == float("inf")


def test_models_are_judged_on_what_they_have_not_seen(spaces: Path, tmp_path: Path) -> None:
    figures = tmp_path / "model.json"
    assert cost_model.main([str(spaces), "--seeds", "1", "--json", str(figures)]) == 0
    rows = json.loads(figures.read_text())["tables"]["within a task"]
    assert [row["model"] for row in rows] == list(cost_model.MODELS)
    assert all(0 <= row["pairs 16"] <= 1 and 0 < row["top 10 16"] <= 1 for row in rows)


def test_recordings_with_the_same_features_predict_one_another(spaces: Path) -> None:
    (path,) = spaces.glob("*.jsonl.gz")
    table = cost_model.Table(SpaceRecording.load(path))
    pairs, top = cost_model.across([table, table], 0, cost_model.MODELS["trees"](0))
    assert pairs > 0.8 and top > 0.8  # it is its own twin here


@pytest.mark.parametrize(
    ("benchmark", "words"), [(search, ["--trials", "16", "--strategy", "random"]), (cost_model, [])]
)
def test_curves_are_drawn(benchmark: object, words: list[str], spaces: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawing = tmp_path / "curves.svg"
    assert benchmark.main([str(spaces), "--seeds", "1", *words, "--plot", str(drawing)]) == 0  # type: ignore[attr-defined]
    assert drawing.read_text().count("<path") > 20


@pytest.mark.parametrize("benchmark", [search, cost_model])
def test_a_drawing_without_matplotlib_is_refused_before_anything_runs(
    benchmark: object, spaces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="--plot needs matplotlib: pip install matplotlib"):
        benchmark.main([str(spaces), "--plot", str(tmp_path / "curves.svg")])  # type: ignore[attr-defined]


@pytest.mark.parametrize("benchmark", [search, cost_model, whole_model])
def test_an_empty_folder_is_said(benchmark: object, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="holds no recorded space; python -m benchmarks.record_space"):
        benchmark.main([str(tmp_path)])  # type: ignore[attr-defined]


def test_a_whole_model_is_tuned_in_simulation(spaces: Path, tmp_path: Path) -> None:
    figures = tmp_path / "model.json"
    words = [str(spaces), "--seconds", "1", "3", "--seeds", "2", "--json", str(figures)]
    assert whole_model.main(words) == 0
    short, long = json.loads(figures.read_text())["tables"]["models"]
    assert 1 <= short["trials"] < long["trials"] <= 70
    assert 0.9 < short["gain"] <= short["best"] + 1e-9 and long["best"] == short["best"]


def test_the_same_seed_tunes_the_same_model(spaces: Path) -> None:
    (path,) = spaces.glob("*.jsonl.gz")
    recording = whole_model.today(SpaceRecording.load(path))
    assert recording is not None
    assert whole_model.simulated([recording], 1.0, 3) == whole_model.simulated([recording], 1.0, 3)
