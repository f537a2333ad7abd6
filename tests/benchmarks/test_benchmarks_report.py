"""Reports carry their environment, and losses are said as loudly as wins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.report import Claim, Report, commit, environment, format_table, installed


def test_a_claim_says_whether_it_holds() -> None:
    assert Claim("speed", 1.2, "at least", 1.0).holds is True
    assert Claim("speed", 0.9, "at least", 1.0).holds is False
    assert Claim("error", 0.9, "at most", 1.0).holds is True
    assert Claim("error", float("nan"), "at most", 1.0).holds is False
    assert str(Claim("speed", 0.9, "at least", 1.0, "x")) == "MISSED  speed: 0.9x, at least 1x"


def test_what_was_not_measured_neither_holds_nor_fails() -> None:
    claim = Claim("speed", None, "at least", 1.0, note="no peer is installed")
    assert claim.holds is None
    assert str(claim).startswith("no figure") and "no peer is installed" in str(claim)


def test_the_environment_names_machine_versions_and_commit() -> None:
    found = environment()
    assert found["affinity"] and found["commit"]
    versions = found["versions"]
    assert isinstance(versions, dict) and versions["numpy"] == installed("numpy")
    json.dumps(found)


def test_outside_a_repository_the_commit_is_unknown(tmp_path: Path) -> None:
    assert commit(tmp_path) == "unknown"


def test_a_table_aligns_numbers_right_and_puts_notes_last() -> None:
    text = format_table([{"name": "a", "note": "slow", "ms": 1.5}, {"name": "bcd", "ms": 123.4, "ok": False}])
    lines = text.splitlines()
    assert lines[0].split() == ["name", "ms", "ok", "note"]
    assert lines[2].split() == ["bcd", "123", "NO", "-"]
    assert lines[1].index("1.5") + 3 == lines[2].index("123") + 3


def test_the_file_holds_what_was_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("demo", "counted by hand", quick=True)
    report.table("figures", [{"what": "a", "value": 1.0}])
    report.table("figures", [{"what": "b", "value": 2.0}])
    report.claim("b is small", 2.0, "at most", 1.0)
    report.finish(tmp_path / "deep" / "demo.json")
    stored = json.loads((tmp_path / "deep" / "demo.json").read_text())
    assert stored["tables"]["figures"] == [{"what": "a", "value": 1.0}, {"what": "b", "value": 2.0}]
    assert stored["claims"][0]["holds"] is False
    assert stored["quick"] and stored["environment"]["commit"]
    assert "MISSED  b is small" in capsys.readouterr().out
