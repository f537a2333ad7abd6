"""`--precision` and `--max-error` of the commands that compile."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from autotune.compiler.precise import folds_rows
from autotune.target import Target
from autotune.tensor import DType
from tests.cli.cli_models import conv_model, invoke, save

TARGET = ("--target", "native -num-cores=1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(conv_model(), tmp_path_factory.mktemp("model") / "small.onnx")


def products(dtype: DType) -> int:
    """Of the model: one, and its first convolution, of three channels, where an instruction folds rows."""
    return 1 + folds_rows(Target.parse(TARGET[1]), dtype)


def test_compile_says_what_it_did(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.at"
    done = invoke("compile", model, "-o", out, *TARGET, "--untuned", "--precision", "bf16", "--json")
    count = products(DType.bf16)
    assert json.loads(done.stdout)["precision"] == {
        "asked": "bf16", "dtype": "bf16", "narrow": count, "products": count, "rounded": 0, "error": None,
        "note": "",
    }  # fmt: skip
    shown = invoke("compile", model, "-o", out, *TARGET, "--untuned", "--precision", "f16").stdout
    count = products(DType.f16)
    assert f"f16 in {count} of {count} products" in shown and "--precision f16 --budget" in shown


def test_auto_reports_its_error(model: Path, tmp_path: Path) -> None:
    done = invoke(
        "compile", model, "-o", tmp_path / "m.at", *TARGET, "--untuned", "--precision", "auto", "--max-error", "0.05",
        "--json",
    )  # fmt: skip
    found = json.loads(done.stdout)["precision"]
    assert found["asked"] == "auto" and (found["narrow"] == 0 or 0 < found["error"] <= 0.05)


@pytest.mark.parametrize("command", [["run", "--random", "0"], ["profile", "--rounds", "1"], ["tasks"]])
def test_commands_take_it(model: Path, command: list[str]) -> None:
    untuned = [] if command[0] == "tasks" else ["--untuned"]
    done = invoke(command[0], model, *command[1:], *untuned, *TARGET, "--precision", "bf16", "--json")
    assert done.exit_code == 0, done.stderr
    assert command[0] == "run" or "bf16" in done.stdout


def test_bench_compares_with_f32(model: Path) -> None:
    done = invoke(
        "bench", model, "--against", "none", "--threads", "1", "--rounds", "1", "--precision", "f16", "--json"
    )
    assert [one["name"] for one in json.loads(done.stdout)["engines"]] == ["autotune", "autotune f32"]


def test_tuning_tunes_the_narrow_kernels(model: Path, tmp_path: Path) -> None:
    db = tmp_path / "tuning.sqlite"
    done = invoke("tune", model, "--db", db, *TARGET, "--trials", "2", "--precision", "bf16", "--json")
    assert done.exit_code == 0, done.stderr
    shown = invoke("tasks", model, "--db", db, *TARGET, "--precision", "bf16", "--json")
    tasks = json.loads(shown.stdout)
    rows = tasks["tasks"] if isinstance(tasks, dict) else tasks
    assert any("bf16" in row["operator"] and row["tier"] == "exact" for row in rows)


def test_f32_within_an_error(model: Path, tmp_path: Path) -> None:
    done = invoke("compile", model, "-o", tmp_path / "m.at", *TARGET, "--untuned", "--max-error", "1e-4", "--json")
    found = json.loads(done.stdout)
    assert found["precision"]["dtype"] == "f32" and 0 < found["precision"]["error"] <= 1e-4
    assert 0 < found["expected_error"] < 1e-4


def test_bench_says_what_float64_gives(model: Path) -> None:
    words = ("--against", "none", "--threads", "1", "--rounds", "1", "--exact")
    found = json.loads(invoke("bench", model, *words, "--json").stdout)
    assert found["errors_from"] == "float64" and 0 < found["engines"][0]["max_error"] < 1e-4
    assert 0 < found["expected_error"] < 1e-4
    assert "relative to float64's range" in invoke("bench", model, *words).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--precision", "fp16"], "there is no precision 'fp16'; there are model, f32, bf16, f16, auto"),
        (["--precision", "auto", "--max-error", "7"], "the largest error 7.0 is no share of a range"),
        (
            ["--precision", "bf16", "--max-error", "0.1"],
            "a largest error is what precisions model, f32 and auto heed, not bf16",
        ),
        (["--max-error", "1e-12"], "in f32 the outputs are off by "),
    ],
)
def test_wrong_words_are_one_line(model: Path, words: list[str], message: str) -> None:
    done = invoke("run", model, "--random", "0", *TARGET, *words)
    assert done.exit_code == 1 and done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1


def test_weights_beyond_f16_are_one_line(tmp_path: Path) -> None:
    large = conv_model()
    for tensor in large.graph.initializer:
        if tensor.name == "w1":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1e6), "w1"))
    done = invoke("run", save(large, tmp_path / "large.onnx"), "--random", "0", *TARGET, "--precision", "f16")
    assert done.exit_code == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: precision f16: the weight 'w1' of 'y' reaches ")
