"""Comparing outputs: what counts as an error, and how large it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from autotune.engines.compare import Comparison, EngineResult, compare
from autotune.engines.engine import Feeds
from autotune.measure.quiet import Disturbance
from autotune.runtime.difference import max_error
from autotune.runtime.executor import Array
from autotune.target import Target

ROOT = Path(__file__).parents[2]


class Constant:
    """An engine that always answers the same."""

    version = "1"

    def __init__(self, name: str, *values: float) -> None:
        self.name = name
        self.calls = 0
        self._values = np.array(values, np.float32)

    def run(self, feeds: Feeds) -> Sequence[Array]:
        self.calls += 1
        return [self._values]


def test_the_error_is_relative_to_the_range() -> None:
    wanted = [np.array([0.0, 10.0])]
    assert max_error([np.array([0.0, 10.5])], wanted) == pytest.approx(0.05)
    assert max_error([np.array([0.0, 10.0])], wanted) == 0


@pytest.mark.parametrize("found", [[], [np.zeros(3)], [np.array([0.0, np.nan])], [np.array([0.0, np.inf])]])
def test_other_shapes_and_lost_numbers_are_infinitely_wrong(found: list[Array]) -> None:
    assert max_error(found, [np.array([0.0, 10.0])]) == float("inf")


def test_equal_nans_are_right() -> None:
    assert max_error([np.array([np.nan, 1.0])], [np.array([np.nan, 1.0])]) == 0


def test_every_engine_has_its_turns_and_is_checked_against_the_reference() -> None:
    engines = [Constant("autotune", 0.0, 1.5), Constant("onnxruntime", 0.0, 1.0)]
    found = compare(engines, {}, Target.parse("native -num-cores=1"), flops=10, rounds=2)
    ours, peer = found.results
    assert ours.max_error == pytest.approx(0.5)
    assert peer.max_error is None
    assert min(engine.calls for engine in engines) > 4
    assert ours.gflops == pytest.approx(10e-9 / ours.seconds)
    assert ours.peak_share == pytest.approx(ours.gflops / found.peak_gflops)


def test_without_the_reference_nothing_is_said_about_errors() -> None:
    found = compare([Constant("autotune", 1.0)], {}, Target.parse("native -num-cores=1"), flops=1, rounds=1)
    assert found.results[0].max_error is None


def test_a_busy_machine_and_a_low_peak_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Disturbance(crowded=0.4, load=3.0)
    monkeypatch.setattr("autotune.measure.quiet.Watch.look", lambda watch: busy)
    monkeypatch.setattr("autotune.measure.peaks.FmaPeak.run", lambda probe: 1.0)
    found = compare([Constant("autotune", 1.0)], {}, Target.parse("native -num-cores=1"), flops=1, rounds=1)
    assert found.disturbance == busy.describe() == "other programs took 40 % of the cores' time (load 3.0)"
    assert "should reach" in found.peak_doubt


def test_speed_ups_are_of_the_same_rounds() -> None:
    ours = EngineResult("autotune", "1", 2.0, 0.0, 1.0, 0.1, None, (1.0, 2.0, 4.0))
    peer = EngineResult("other", "1", 4.0, 0.0, 1.0, 0.1, None, (1.1, 4.0, 4.4))
    ratio = Comparison((ours, peer), 10.0, 3).speedup(peer)
    assert ratio.median == pytest.approx(1.1)
    assert ratio.interval is None


def test_a_process_with_another_engine_holds_nothing_of_ours() -> None:
    """Its memory is measured against ours."""
    script = (
        "import sys; from autotune.engines import peers; "
        "print(*[name for name in sys.modules if name.startswith(('llvmlite', 'autotune.runtime', 'onnx'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    assert done.stdout.split() == []
