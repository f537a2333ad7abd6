"""The language benchmark in miniature: kernels race, proofs are right, trials are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.measure.failure import Failure
from autotune.measure.types import MeasureResult
from autotune.ops import parse_workload
from autotune.search_spaces import Config
from autotune.target import Target
from benchmarks import language, proofs
from benchmarks.report import Report
from benchmarks.trials import measure
from benchmarks.workshop import Workshop, default_of, figures
from tests.conftest import Right

SMALL = "conv2d data=1,16,9,9 weight=16,16,3,3 pad=1"


@pytest.mark.parametrize("cpu", ["native", "haswell"])
@pytest.mark.parametrize("shape", [(2, 16, 16), (3, 13, 20), (1, 1, 1)])
def test_row_blocked_attention_is_right(right: Right, cpu: str, shape: tuple[int, int, int]) -> None:
    right(proofs.row_blocked(proofs.attention(*shape), language.target_of(cpu)))


@pytest.mark.parametrize("sizes", [(16, 64, 32), (7, 101, 33), (1, 8, 1)])
def test_split_k_is_right(right: Right, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    right(proofs.split_k(parse_workload(f"matmul a={m},{k} b={k},{n}"), Target.parse("native")))


def test_a_race_times_what_is_right_and_reports_what_is_not() -> None:
    workload, target = parse_workload(SMALL), language.target_of("native")
    default = default_of("conv2d.direct", workload, target)
    assert default is not None
    with Workshop(target) as workshop:
        outcomes = workshop.race(workload, {"wrong": Config((("template", "no.such"),)), "default": default}, 2)
    assert list(outcomes) == ["wrong", "default"]
    assert isinstance(outcomes["wrong"], Failure) and "no.such" in str(figures(workload, outcomes["wrong"])["note"])
    assert isinstance(outcomes["default"], MeasureResult)
    assert figures(workload, outcomes["default"])["error"] == outcomes["default"].max_abs_err


def test_a_contest_reports_default_tuned_and_record(tmp_path: Path) -> None:
    database = tmp_path / "t.sqlite"
    settings = language.Settings(rounds=2, tuned=3, tuning_database=database, database=database, quick=True)
    report = Report("language", "test")
    with Workshop(language.target_of("native")) as workshop:
        best = language.contest(report, workshop, "direct", "small", SMALL, "conv2d.direct", settings)
    kernels = [row["kernel"] for row in report.tables["direct"]]
    assert kernels == ["default", "best of 3", "record"]
    assert best is not None and best > 0


def test_a_template_that_does_not_apply_has_no_default() -> None:
    dilated = parse_workload("conv2d data=1,16,9,9 weight=16,16,3,3 pad=1 dilation=2")
    assert default_of("conv2d.winograd_f4", dilated, Target.parse("native")) is None


def test_trials_are_counted_from_the_database(tmp_path: Path) -> None:
    row = measure(SMALL, 4, tmp_path / "t.sqlite")
    assert row["trials"] == 4 and row["verified"] == 4
    assert float(row["verified / s"] or 0) > 0 and "wait %" in row
