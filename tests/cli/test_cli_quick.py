"""`autotune MODEL`: all steps in one go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli.commands import COMMANDS
from autotune.cli.quick import with_command
from tests.cli.cli_models import conv_model, invoke, save

TARGET = ("--target", "native -num-cores=1")


def test_a_path_in_the_place_of_a_command(tmp_path: Path) -> None:
    odd = save(conv_model(), tmp_path / "weights.bin")
    assert with_command(["m.onnx", "--budget", "5s"], COMMANDS) == ["quick", "m.onnx", "--budget", "5s"]
    for path in ("m.onx", "models/resnet"):
        assert with_command([path], COMMANDS) == ["quick", path], "no such file, which is said, not: no such command"
    assert with_command([str(odd)], COMMANDS) == ["quick", str(odd)]
    for words in ([], ["tune", "m.onnx"], ["--version"], ["nonsense"], ["db", "list"]):
        assert with_command(words, COMMANDS) == words


def test_a_command_comes_before_a_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").touch()
    assert with_command(["run", "m.onnx"], COMMANDS) == ["run", "m.onnx"]


def test_a_model_is_tuned_compiled_and_compared(tmp_path: Path) -> None:
    model, db = save(conv_model(), tmp_path / "small.onnx"), tmp_path / "db.sqlite"
    command = [sys.executable, "-m", "autotune", str(model), "--budget", "4s", "--db", str(db), *TARGET]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "small.at").exists() and db.exists()
    assert [line for line in done.stdout.splitlines() if line.startswith("== next: ")] == [done.stdout.splitlines()[-2]]
    assert "to tune" not in done.stdout and "goes on tuning" in done.stdout
    assert "× as fast" in done.stdout or "nothing faster was found" in done.stdout
    assert "\nonnxruntime " in done.stdout
    assert f"autotune.InferenceSession('{tmp_path / 'small.at'}')" in done.stdout
    assert invoke("run", tmp_path / "small.at", "--random", "0").exit_code == 0


def test_all_of_it_as_json(tmp_path: Path) -> None:
    model, db = save(conv_model(), tmp_path / "small.onnx"), tmp_path / "db.sqlite"
    done = invoke("quick", model, "--budget", "1s", "--db", db, *TARGET, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"model", "tune", "compile", "bench"} and found["model"] == str(model)
    assert found["tune"]["database"] == str(db) and found["compile"]["file"] == str(tmp_path / "small.at")
    assert found["bench"]["threads"] == 1 and found["bench"]["model"] == str(model)
    assert f"== compiling to {tmp_path / 'small.at'}" in done.stderr
    refused = invoke("quick", tmp_path / "none.onnx", "--json")
    assert refused.exit_code == 1 and json.loads(refused.stdout)["error"]["kind"] == "ModelError"


def test_what_cannot_be_done_is_said_before_any_time_is_spent(tmp_path: Path) -> None:
    db = ("--db", tmp_path / "db.sqlite")
    missing = invoke("quick", tmp_path / "none.onnx", *db)
    assert missing.exit_code == 1 and "none.onnx" in missing.stderr
    unknown = invoke("quick", save(conv_model(op="Convolve"), tmp_path / "m.onnx"), *db)
    assert unknown.exit_code == 1 and "Convolve" in unknown.stderr
    nowhere = invoke("quick", save(conv_model(), tmp_path / "n.onnx"), "-o", tmp_path / "none" / "n.at", *db)
    assert nowhere.exit_code == 1 and "there is no folder" in nowhere.stderr
    library = invoke("quick", save(conv_model(), tmp_path / "n.onnx"), "-o", tmp_path / "n.so", *db)
    assert library.exit_code == 1 and "not a shared library" in library.stderr
    assert not (tmp_path / "db.sqlite").exists()
