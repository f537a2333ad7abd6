"""`autotune doctor`: what is in the way, with what to do; exit code 1 where it spoils numbers or is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.measure import checkup, peaks
from autotune.measure.checkup import Observation
from autotune.measure.peaks import Peaks, Rate
from autotune.measure.quiet import Disturbance
from autotune.measure.rounds import Moment
from autotune.target import Target
from tests.cli.cli_models import invoke

TARGET = Target.parse("native")
USUAL = Moment(TARGET.core.ghz, 100.0, 8.0)


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A calm machine with an empty home."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    rate = Rate(1e6, 1e6)
    monkeypatch.setattr(peaks, "measure_peaks", lambda _: Peaks(rate, None, None, rate, rate, rate, rate))
    show(monkeypatch, Disturbance())


def show(monkeypatch: pytest.MonkeyPatch, disturbance: Disturbance) -> None:
    seen = Observation(disturbance, (USUAL,), (True,), USUAL)
    monkeypatch.setattr(checkup, "observe", lambda *_: seen)


def test_a_healthy_machine(tmp_path: Path) -> None:
    found = invoke("doctor")
    assert found.exit_code == 0, found.stdout
    assert TARGET.cpu in found.stdout and "none yet" in found.stdout and str(tmp_path) in found.stdout
    assert not [line for line in found.stdout.splitlines() if line.startswith("!!")]


def test_who_disturbs_is_named_and_the_exit_code_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, Disturbance(crowded=0.5, by=("make",)))
    found = invoke("doctor")
    assert found.exit_code == 1
    assert "!!    other programs" in found.stdout and "mostly make" in found.stdout
    assert "\nother programs: let them end" in found.stdout
    values = json.loads(invoke("doctor", "--json").stdout)
    assert values["healthy"] is False
    assert [one["about"] for one in values["findings"] if one["harmful"]] == ["other programs"]


def test_what_is_broken_is_told_beside_what_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.sqlite").write_bytes(b"no database" * 100)
    (tmp_path / "XDG_CACHE_HOME").write_text("a file")
    found = invoke("doctor", "--db", tmp_path / "broken.sqlite")
    assert found.exit_code == 1
    assert "!!    database" in found.stdout and "!!    object cache" in found.stdout
    assert "Traceback" not in found.stdout


def test_records_of_other_targets_are_told_from_ones_own(tmp_path: Path) -> None:
    database = tmp_path / "db.sqlite"
    tuned: list[str | Path] = ["tune", "--op", "relu data=64", "--trials", "2", "--db", database]
    assert invoke(*tuned, "-t", "1").exit_code == 0
    assert "1 for this target" in invoke("doctor", "--db", database, "-t", "1").stdout
    other = invoke("doctor", "--db", database, "--target", "x86 -mcpu=haswell -num-cores=1")
    assert "0 for this target" in other.stdout and "no record is for x86_64-haswell" in " ".join(other.stdout.split())


def test_a_target_that_cannot_run_here_is_one_line() -> None:
    found = invoke("doctor", "--target", "x86 -mcpu=nosuch")
    assert found.exit_code == 1 and found.stderr.count("\n") == 1
