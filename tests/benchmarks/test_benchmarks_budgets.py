"""What is claimed of a model that was tuned for several times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import budgets
from benchmarks.report import Row


def test_a_short_budget_is_held_against_the_longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def tuned(name: str, budget: str, folder: Path, threads: int) -> Row:
        asked.append((budget, threads))
        return {"task": name, "verified / s": 20.0, "search %": 7.0, "model %": 1.0}

    def raced(path: Path, feeds: object, threads: int, databases: dict[str, Path], rounds: int) -> list[Row]:
        assert path.exists()
        return [{"program": label, "ms": 30.0 + n} for n, label in enumerate(reversed(databases))]

    monkeypatch.setattr(budgets, "measure_model", tuned)
    monkeypatch.setattr(budgets, "raced", raced)
    figures = tmp_path / "figures.json"
    words = ["squeezenet", "--seconds", "600", "10", "60", "--threads", "2", "--json", str(figures)]
    assert budgets.main(words) == 0
    assert asked == [("10s", 2), ("60s", 2), ("600s", 2)]
    claims = {claim["text"]: claim for claim in json.loads(figures.read_text())["claims"]}
    late = claims["time after 60 s over that after 600 s"]
    assert late["value"] == pytest.approx(31 / 30) and not late["holds"]
    assert "time after 10 s over that after 600 s" not in claims  # too soon for a promise
    assert claims["search and model in 10 s, share of the time"]["value"] == pytest.approx(0.08)
    assert claims["verified trials a second in 60 s"]["holds"]
