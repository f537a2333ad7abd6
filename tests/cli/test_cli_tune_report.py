"""What is said of a tuning run: what was gained, whether that can be trusted, and when nothing was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.api.tuning import TuneReport
from autotune.api.verdict import ModelVerdict
from autotune.cli.tune_report import show_report
from autotune.measure.peaks import Peak
from autotune.ops.parse import parse_workload
from autotune.search.outcome import TaskOutcome, TuneOutcome
from autotune.search.shares import TimeShares
from autotune.search.task import TuningTask
from autotune.search.trial import Trial
from autotune.target import Target

TARGET = Target.parse("x86 -mcpu=haswell -num-cores=1")
TASK = TuningTask.of(parse_workload("matmul a=8,16 b=16,32"), TARGET)
TUNED = Trial(TASK.space.default(), seconds=7.426e-3, compared=True)
MOVED = TaskOutcome(TASK, 64, 64, 0, 0, 9.119e-3, 7.499e-3, False, TUNED, 1.0, None, None)
STEADY = replace(MOVED, default_alone=9.3e-3)


def shown(capsys: pytest.CaptureFixture[str], task: TaskOutcome, *programs: ModelVerdict) -> str:
    found = TuneOutcome((task,), 10.0, dict(TimeShares(lambda: 0.0).seconds), False, "session")
    show_report(TuneReport(TARGET, Path("db"), found, programs, 0, Peak(100.0), False), "it", None, every=True)
    return capsys.readouterr().out


def test_an_untuned_time_that_moved_is_in_doubt(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, MOVED)
    assert "it: 9.119 ms untuned, 7.426 ms tuned: 1.23× as fast\n" in found
    assert "in doubt: in a trial of its own the untuned kernel took 7.499 ms, so 1.01× as fast; tune again" in found
    assert "in doubt" not in shown(capsys, STEADY)


def test_tuned_is_not_slower_but_was_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, replace(STEADY, default_seconds=7e-3, default_alone=None, default_disturbed=True))
    assert "0.94× as fast, in doubt: other programs ran beside it; they were not timed in turn yet" in found


def test_of_a_model_such_kernels_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = ModelVerdict(7e-3, 9e-3, 1.2, True, 0.0, (1.1, 1.3), 30)
    found = shown(capsys, MOVED, verdict)
    assert "in turn 1.20× as fast (1.10 to 1.30), 30 rounds on 1 thread" in found
    assert "in doubt: the untuned times of 1 kernel moved by over 5.0 % from one timing to the next" in found
    assert "in doubt" not in shown(capsys, STEADY, verdict)


def test_what_others_ran_beside_the_untuned_kernel_counts_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "disturbed" not in shown(capsys, STEADY)
    found = shown(capsys, replace(STEADY, default_disturbed=True))
    assert "disturbed: the times, untuned or tuned, of 1 kernel are from beside other programs" in found
    assert "1.23× as fast, in doubt: other programs ran beside it\n" in found


def test_equal_programs_have_one_time(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, STEADY, ModelVerdict(36e-3, 36e-3, 1.0, True, 0.0, (1.0, 1.0), 30))
    found_nothing = "nothing faster was found: the tuned program is the untuned one"
    assert found.splitlines()[0] == f"it: 36.000 ms (median of 30 rounds on 1 thread); {found_nothing}"
    untried = shown(capsys, replace(STEADY, trials=0), ModelVerdict(36e-3, 36e-3, 1.0, True, 0.0, (1.0, 1.0), 30))
    assert "no time was left to try anything: the tuned program is the untuned one" in untried
    assert "36.000 ms tuned" not in found and "1.00× as fast" not in found
