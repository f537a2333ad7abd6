"""`autotune tune` as a user runs it: workers, a database, Ctrl-C, kill -9, and the same command again."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from autotune.errors import DatabaseError
from autotune.records import Database, SessionState
from tests.cli.cli_models import conv_model, save

ROOT = Path(__file__).parents[2]
AUTOTUNE = (sys.executable, "-m", "tests.hasty")
TARGET = ("--threads", "1")
OP = ("--op", "conv2d data=1,16,12,12 weight=32,16,3,3 pad=1")


def autotune(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AUTOTUNE, *map(str, args)], capture_output=True, text=True, cwd=ROOT, timeout=300, check=False
    )


def report(*args: str | Path) -> dict[str, Any]:
    """The JSON of a tuning run that ended well."""
    done = autotune("tune", *args, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def trials(path: Path) -> int:
    """How many there are now; 0 while the tuner is still creating the database."""
    try:
        with Database.open(path, read_only=True) as database:
            return len(list(database.trials()))
    except DatabaseError:
        return 0


def wait_for_trials(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while trials(path) < count:
        assert process.poll() is None, "the tuner ended before it had measured anything"
        assert time.monotonic() < deadline
        time.sleep(0.1)


def descendants(pid: int) -> set[int]:
    """The processes that `pid` has started, and theirs."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def assert_all_end(pids: set[int]) -> None:
    deadline = time.monotonic() + 20
    while alive := {pid for pid in pids if is_alive(pid)}:
        assert time.monotonic() < deadline, f"orphans: {alive}"
        time.sleep(0.1)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def tuner(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A tuner at work, with some trials done."""
    path = tmp_path / "tuning.sqlite"
    process = subprocess.Popen(
        [*AUTOTUNE, "tune", *OP, *TARGET, "--db", str(path), "--trials", "100000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        wait_for_trials(path, 3, process)
        yield process, path
    finally:
        process.kill()
        process.communicate()


def test_an_operator_is_tuned_and_the_same_command_again_does_nothing(tmp_path: Path) -> None:
    args = (*OP, *TARGET, "--db", tmp_path / "db.sqlite", "--trials", "12")
    first = report(*args)
    assert first["new_trials"] == 12
    assert first["model"] is None
    (task,) = first["tasks"]
    assert task["best_seconds"] > 0
    assert task["default_seconds"] > 0
    assert {"build", "run", "model", "search"} <= first["shares"].keys()
    assert report(*args)["new_trials"] == 0
    with Database.open(tmp_path / "db.sqlite", read_only=True) as database:
        assert {session.state for session in database.sessions()} == {SessionState.FINISHED}
        assert all(session.command.startswith("autotune tune --op") for session in database.sessions())
        assert any(record.verified for record in database.trials())


def test_a_tuned_model_has_no_misses_and_gives_the_right_answer(tmp_path: Path) -> None:
    model, path = save(conv_model(), tmp_path / "small.onnx"), tmp_path / "db.sqlite"
    found = report("--model", model, *TARGET, "--db", path, "--trials", "30")
    verdict = found["model"]
    assert isinstance(verdict, dict)
    assert verdict["tuned"] == (verdict["speedup"] >= 1)
    assert verdict["error"] < 1e-5
    done = autotune("compile", model, *TARGET, "--db", path, "-o", tmp_path / "small.at", "--json")
    coverage = json.loads(done.stdout)["coverage"]
    assert coverage["exact"] == (1.0 if verdict["tuned"] else 0.0)
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    autotune("run", tmp_path / "small.at", "--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path)
    (wanted,) = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, atol=1e-4)


def test_ctrl_c_keeps_everything_and_says_how_to_continue(tuner: tuple[subprocess.Popen[str], Path]) -> None:
    process, path = tuner
    workers = descendants(process.pid)
    assert workers
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert "trials in" in stdout, "the summary of what was found"
    command = re.search(r"to continue: autotune (.*)", stderr)
    assert command
    assert shlex.split(command[1]) == ["tune", *OP, *TARGET, "--db", str(path), "--trials", "100000"]
    assert_all_end(workers)
    with Database.open(path, read_only=True) as database:
        assert [session.state for session in database.sessions()] == [SessionState.INTERRUPTED]
    found = trials(path)
    assert found >= 3
    again = report(*OP, *TARGET, "--db", path, "--trials", str(found + 2))
    assert again["new_trials"] == 2


def test_kill_9_loses_no_finished_trial_and_leaves_no_process(tuner: tuple[subprocess.Popen[str], Path]) -> None:
    process, path = tuner
    workers = descendants(process.pid)
    process.kill()
    process.wait()
    assert_all_end(workers)
    found = trials(path)
    assert found >= 3
    assert report(*OP, *TARGET, "--db", path, "--trials", str(found + 1))["new_trials"] == 1
    with Database.open(path, read_only=True) as database:
        states = [session.state for session in database.sessions()]
    assert states == [SessionState.INTERRUPTED, SessionState.FINISHED]


def test_user_operators_are_imported_by_the_workers(tmp_path: Path) -> None:
    template = ROOT / "tests" / "measure" / "toy_template.py"
    args = ("--op", "matmul a=8,8 b=8,8", *TARGET, "--db", tmp_path / "db.sqlite", "--trials", "2")
    assert report(*args, "--import", os.fspath(template))["new_trials"] == 2
