"""The demo, on a small network and a small budget."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.records import Database

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_tunes_compiles_checks_and_compares(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.demo", "--model", "squeezenet", "--budget", "5s", "--folder", tmp_path],
        capture_output=True, text=True, cwd=ROOT, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"untuned [\d.]+ [mµ]s+, tuned [\d.]+ [mµ]s, onnxruntime [\d.]+ [mµ]s", done.stdout)
    assert "the answers agree" in done.stdout
    assert (tmp_path / "squeezenet.at").stat().st_size > 1 << 20
    with Database.open(tmp_path / "tuning.sqlite", read_only=True) as database:
        assert len(list(database.trials())) > 0


def test_a_budget_that_is_none_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.demo", "--model", "squeezenet", "--budget", "soon", "--folder", tmp_path],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "error: 'soon' is no budget" in done.stderr
    assert "Traceback" not in done.stderr
