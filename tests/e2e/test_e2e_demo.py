"""The demo, on a small network and a small budget."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.engines.compare import Comparison, EngineResult
from autotune.records import Database
from benchmarks.demo import outcome

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_tunes_compiles_checks_and_compares(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.demo", "--model", "squeezenet", "--budget", "5s", "--folder", tmp_path],
        capture_output=True, text=True, cwd=ROOT, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"untuned [\d.]+ [mµ]s+, (tuned [\d.]+ [mµ]s, )?onnxruntime [\d.]+ [mµ]s; ", done.stdout)
    assert "the answers agree" in done.stdout
    assert (tmp_path / "squeezenet.at").stat().st_size > 1 << 20
    with Database.open(tmp_path / "tuning.sqlite", read_only=True) as database:
        assert len(list(database.trials())) > 0


def engine(name: str, *samples: float) -> EngineResult:
    return EngineResult(name, "1", statistics.median(samples), 0.0, 1.0, 0.1, None, samples)


def test_what_tuning_gained_is_said_and_noise_is_no_gain() -> None:
    times = [1.0 + n / 100 for n in range(20)]
    ours, slower, peer = engine("ours", *times), engine("u", *(2 * t for t in times)), engine("onnxruntime", 3.0)
    noisy = engine("u", *(t * (1.02 if n % 2 else 0.99) for n, t in enumerate(times)))

    def said(*results: EngineResult) -> str:
        return outcome(Comparison(results, 100.0, 20))

    assert said(ours, slower, peer).endswith("tuned 1.095 s, onnxruntime 3.000 s; tuning made it 2.00× as fast")
    assert said(ours, noisy, peer).endswith("; untuned and tuned do not differ by more than noise does")
    same = said(ours, peer)
    assert same.startswith("untuned 1.095 s, onnxruntime 3.000 s; tuning found nothing faster")
    assert ", tuned" not in same, "equal programs have one time"


def test_a_budget_that_is_none_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.demo", "--model", "squeezenet", "--budget", "soon", "--folder", tmp_path],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "error: 'soon' is no budget" in done.stderr
    assert "Traceback" not in done.stderr
