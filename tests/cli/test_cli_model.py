"""`autotune tasks, compile, run, bench` on a small model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import autotune
from tests.cli.cli_models import conv_model, invoke, save

TARGET = ("--target", "native -num-cores=1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(conv_model(), tmp_path_factory.mktemp("model") / "small.onnx")


@pytest.fixture(scope="module")
def compiled(model: Path) -> Path:
    out = model.with_name("small.at")
    assert invoke("compile", model, "-o", out, "--untuned", *TARGET).exit_code == 0
    return out


@pytest.fixture(autouse=True)
def _no_user_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "user.sqlite"))


def reference(
    model: Path, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})
    return y  # type: ignore[no-any-return]


def test_tasks_add_up(model: Path) -> None:
    found = json.loads(invoke("tasks", model, *TARGET, "--json").stdout)
    tasks = found["tasks"]
    assert sum(task["share"] for task in tasks) == pytest.approx(1.0)
    assert sum(task["uses"] * task["flops"] for task in tasks) == found["flops"]
    anchors = [task for task in tasks if task["operator"].startswith("conv2d")]
    assert len(anchors) == 2
    assert all("conv2d.direct" in task["templates"] and task["tier"] == "miss" for task in anchors)


def test_tasks_as_text_has_one_line_per_task(model: Path) -> None:
    lines = invoke("tasks", model, *TARGET).stdout.splitlines()
    tasks = json.loads(invoke("tasks", model, *TARGET, "--json").stdout)["tasks"]
    assert len(lines) == len(tasks) + 2
    assert all(task["operator"] in "".join(lines) for task in tasks)


def test_compile_says_what_is_not_tuned_and_how_to_change_it(model: Path, tmp_path: Path) -> None:
    result = invoke("compile", model, "-o", tmp_path / "out.at", "--untuned", *TARGET)
    assert result.exit_code == 0
    assert "default: 100.0 % of the flops" in result.stdout
    assert f"autotune tune {model} --threads 1 --budget 5m" in result.stdout


@pytest.mark.parametrize("suffix", [".a", ".O", ".onnx", ".dll"])
def test_compile_writes_no_file_that_is_called_another_kind(suffix: str, model: Path, tmp_path: Path) -> None:
    out = tmp_path / f"out{suffix}"
    result = invoke("compile", model, "-o", out, *TARGET)
    assert result.exit_code == 1 and f"name it {out.with_suffix('.at')}" in result.stderr
    assert not out.exists()


@pytest.mark.parametrize("command", ["check", "tasks", "compile", "run", "bench", "profile"])
def test_whatever_compiles_takes_operators_of_the_user(command: str, model: Path, tmp_path: Path) -> None:
    more: dict[str, tuple[str | Path, ...]] = {"compile": ("-o", tmp_path / "out.at"), "run": ("--random", "0")}
    result = invoke(command, model, *more.get(command, ()), "--import", "no_such_module", *TARGET)
    assert result.exit_code == 1 and "no_such_module" in result.stderr


def test_models_and_sessions_have_short_names(model: Path) -> None:
    made = autotune.compile(model, "native -num-cores=1", False)
    assert repr(made).startswith("<CompiledModel (x: f32[1, 3, 8, 8]) -> (y: f32[1, 16, 8, 8]): ")
    session = autotune.InferenceSession(model, target="native -num-cores=1", database=False)
    assert repr(session).startswith("<InferenceSession (x: tensor(float)[1, 3, 8, 8]) -> ")
    assert len(repr(made)) < 200 and len(repr(session)) < 200


def test_compiled_files_are_beside_their_models(model: Path, tmp_path: Path) -> None:
    there = tmp_path / "here.onnx"
    there.write_bytes(model.read_bytes())
    assert invoke("compile", there, *TARGET, "--untuned").exit_code == 0
    assert invoke("run", tmp_path / "here.at", "--random", "0").exit_code == 0


def test_compile_json(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.at"
    found = json.loads(invoke("compile", model, "-o", out, "--json", *TARGET).stdout)
    assert found["bytes"] == out.stat().st_size
    assert found["threads"] == 1
    assert found["coverage"]["exact"] == 0
    assert sum(part["kernels"] for part in found["coverage"]["parts"]) == found["kernels"]


def test_run_gives_the_right_answer_from_the_model_and_from_the_file(
    model: Path, compiled: Path, tmp_path: Path
) -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    wanted = reference(model, x)
    for source in (model, compiled):
        result = invoke("run", source, "--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "out", "--json")
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout)["y"]
        assert found["shape"] == [1, 16, 8, 8]
        np.testing.assert_allclose(np.reshape(found["values"], wanted.shape), wanted, atol=1e-4)
        np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), wanted, atol=1e-4)


def test_the_same_seed_gives_the_same_answer(compiled: Path) -> None:
    first, again, other = (invoke("run", compiled, "--random", seed, "--json").stdout for seed in "001")
    assert first == again != other


def test_an_open_dimension_is_given_by_shape(tmp_path: Path) -> None:
    model = save(conv_model(batch="n"), tmp_path / "open.onnx")
    result = invoke("run", model, "--random", "0", "--shape", "x=2,3,8,8", "--json")
    assert json.loads(result.stdout)["y"]["shape"] == [2, 16, 8, 8]


def test_bench_compares_with_onnxruntime(model: Path) -> None:
    result = invoke(
        "bench", model, "--threads", "1", "--against", "onnxruntime", "--rounds", "2", "--untuned", "--json"
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    ours, untuned, peer = found["engines"]
    assert (ours["name"], untuned["name"], peer["name"]) == ("autotune", "autotune untuned", "onnxruntime")
    assert peer["version"] == ort.__version__
    assert ours["max_error"] < 1e-5
    assert peer["max_error"] is None
    ratios = [theirs / own for own, theirs in zip(ours["samples"], peer["samples"], strict=True)]
    assert peer["speedup"] == pytest.approx(sum(ratios) / 2)
    assert peer["speedup_interval"] is None, "two rounds tell nothing"
    assert found["threads"] == 1
    assert found["flops"] > 0 < found["peak_gflops"]
    assert found["environment"]["versions"]["onnxruntime"] == ort.__version__


def test_a_missing_engine_is_a_note_and_no_failure(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)  # importing it raises ImportError now
    result = invoke("bench", model, "--threads", "1", "--against", "openvino", "--rounds", "1")
    assert result.exit_code == 0
    assert result.stderr == "note: openvino is not installed; pip install openvino: left out\n"
    assert "autotune" in result.stdout


def test_an_unknown_engine_is_refused(model: Path) -> None:
    result = invoke("bench", model, "--against", "onnxruntme", "--rounds", "1")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: unknown engine 'onnxruntme'; known: onnxruntime, openvino")


def test_bench_of_a_compiled_file_leaves_the_others_out(compiled: Path) -> None:
    result = invoke("bench", compiled, "--rounds", "1", "--json")
    assert result.exit_code == 0
    assert [engine["name"] for engine in json.loads(result.stdout)["engines"]] == ["autotune"]
    assert "cannot read" in result.stderr
