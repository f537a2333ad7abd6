"""The performance page is what the committed results say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import pages
from benchmarks.report import Report, Row


def test_the_page_is_written_from_the_committed_results() -> None:
    results = sorted(pages.RESULTS.glob("*.json"))
    assert results
    assert pages.PAGE.read_text() == pages.page(results), "run: python -m benchmarks.pages"


def test_figures_and_missed_claims_are_on_it(tmp_path: Path) -> None:
    report = Report("speed", "Medians of interleaved runs.")
    report.table("latency", [{"model": "a|b", "ms": 1.25}, {"model": "c", "ms": None}])
    report.claim("faster", 0.9, "at least", 1.0, "x")
    path = tmp_path / "speed.json"
    report.finish(path)
    text = pages.page([path])
    assert "## speed\n\nMedians of interleaved runs.\n\n### latency\n" in text
    assert "| model | ms |\n| --- | --: |\n| a\\|b | 1.25 |\n| c | - |" in text
    assert "| faster | 0.9x | at least 1x | **missed** |" in text


def test_of_a_long_table_the_first_rows_are_shown_and_where_the_others_are(tmp_path: Path) -> None:
    report = Report("kill", "Again and again.")
    for title, count in (("long", pages.MOST_ROWS + 1), ("short", pages.MOST_ROWS)):
        report.table(title, [{"kill": f"{title} {number}."} for number in range(count)])
    path = tmp_path / "kill.json"
    report.finish(path)
    text = pages.page([path])
    assert f"| long {pages.SOME_ROWS - 1}. |" in text and f"| long {pages.SOME_ROWS}. |" not in text
    assert (
        f"The first {pages.SOME_ROWS} of {pages.MOST_ROWS + 1} rows; all are in benchmarks/results/kill.json." in text
    )
    assert f"| short {pages.MOST_ROWS - 1}. |" in text


def test_the_fastest_right_answer_is_what_ours_is_held_against(tmp_path: Path) -> None:
    report = Report("models", "Medians.")
    of: Row = {"model": "net", "threads": 1}
    times = {"untuned": 2.0, "autotune f32": 3.0, "wrong": 1.0, "right": 5.0, "slow": 6.0}
    report.table("latency", [{**of, "engine": engine, "ms": ms} for engine, ms in times.items()])
    report.table("output error", [{**of, "engine": engine, "right": right} for engine, right in
                                  (("wrong", "NO"), ("right", "yes"))])  # fmt: skip
    path = tmp_path / "models.json"
    report.finish(path)
    assert "| [models](#models) | net | 1 | 2 | 5 | right | 2.5 |" in pages.page([path])


def test_quick_runs_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "quick.json"
    Report("quick", "None.", quick=True).finish(path)
    with pytest.raises(ValueError, match="quick: a quick run"):
        pages.page([path])
    path.write_text(json.dumps({"benchmark": "x"}))
    with pytest.raises(ValueError, match="quick: no claims, environment"):
        pages.page([path])
