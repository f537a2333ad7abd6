"""`autotune bench`: percentiles, durations, streams, sweeps, and what cannot be asked for."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from autotune import machine
from tests.cli.cli_models import conv_model, invoke, save

ONE = ("--target", "native -num-cores=1", "--against", "none")


@pytest.fixture(autouse=True)
def _no_user_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "user.sqlite"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(conv_model(), tmp_path_factory.mktemp("bench") / "small.onnx")


@pytest.fixture(scope="module")
def open_batch(model: Path) -> Path:
    return save(conv_model(batch="n"), model.with_name("open.onnx"))


def test_a_duration_gives_as_many_rounds_as_fit(model: Path) -> None:
    done = invoke("bench", model, *ONE, "--duration", "0.2s", "--warm-up", "0.01s", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    (ours,) = found["engines"]
    assert found["rounds"] == len(ours["samples"]) >= 1 and ours["calls"] > found["rounds"]
    assert 0 < ours["p50"] <= ours["p90"] <= ours["p99"] and ours["throughput"] > 0


@pytest.mark.skipif(machine.allowed_cores() < 2, reason="streams need cores")
@pytest.mark.parametrize("engine", ["none", "onnxruntime"])
def test_streams_share_the_threads(model: Path, engine: str, tmp_path: Path) -> None:
    words = ("--threads", "2", "--streams", "2", "--rounds", "1", "--against", engine)
    found = json.loads(invoke("bench", model, *words, "--json").stdout)
    assert (found["threads"], found["streams"]) == (2, 2)
    assert all(one["calls"] >= 2 for one in found["engines"])
    assert "--threads 1" in found["to_tune"], "each stream runs what was tuned for one thread"
    if engine == "none":
        compiled = tmp_path / "small.at"
        assert invoke("compile", model, "-o", compiled, *ONE[:2]).exit_code == 0
        shown = invoke("bench", compiled, "--streams", "2", "--rounds", "1", "--against", "none").stdout
        assert "2 threads on" in shown and "2 streams at once" in shown


def test_a_sweep_has_a_line_for_each_setting(open_batch: Path) -> None:
    words = ("--sweep-batch", "1,3", "--rounds", "1")
    done = invoke("bench", open_batch, *ONE, *words, "--csv")
    assert done.exit_code == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [(row["threads"], row["batch"], row["engine"]) for row in rows] == [
        ("1", "1", "autotune"),
        ("1", "3", "autotune"),
    ]
    assert all(float(row["p99"]) >= float(row["p50"]) > 0 for row in rows)
    listed = json.loads(invoke("bench", open_batch, *ONE, *words, "--json").stdout)["settings"]
    assert listed[1]["flops"] == 3 * listed[0]["flops"]
    lines = invoke("bench", open_batch, *ONE, *words).stdout.splitlines()
    assert lines[0].split()[:3] == ["threads", "batch", "items/s"] and len(lines) >= 4


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--streams", "3", "--threads", "4"], 1, "3 streams cannot share 4 threads evenly"),
        (["--streams", "1024", "--threads", "1024"], 1, "1024 streams need as many cores; this process may use"),
        (["--streams", "0"], 2, "--streams"),
        (["--sweep-batch", "1,2"], 1, "has an open first dimension, so its batch is fixed"),
        (["--sweep-batch", "0"], 2, "'0' is no list of numbers from 1 on"),
        (["--sweep-threads", "two"], 2, "--sweep-threads 'two' is no list of numbers from 1 on"),
        (["--sweep-threads", "1", "--threads", "1"], 2, "--threads and --sweep-threads exclude each other"),
        (["--duration", "7"], 2, "--duration '7' is no time; write for example --duration 10s"),
        (["--warm-up", "3 trials"], 2, "--warm-up '3 trials' is no time"),
        (["--json", "--csv"], 2, "--json and --csv exclude each other"),
    ],
)
def test_what_cannot_be_asked_for(model: Path, words: list[str], code: int, message: str) -> None:
    done = invoke("bench", model, "--against", "none", *words)
    assert done.exit_code == code and isinstance(done.exception, SystemExit)
    assert message in " ".join(done.stderr.replace("│", " ").split()), done.stderr
    assert "Traceback" not in done.stderr


def test_a_compiled_file_keeps_its_threads_and_its_batch(model: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "small.at"
    assert invoke("compile", model, "-o", compiled, *ONE[:2]).exit_code == 0
    for words, message in (
        (("--threads", "2"), "was compiled for 1 threads; compile it again for 2"),
        (("--sweep-batch", "2"), "was compiled for one batch"),
        (("--exact",), "float64 arithmetic cannot follow"),
    ):
        done = invoke("bench", compiled, "--against", "none", *words)
        assert done.exit_code == 1 and message in done.stderr
