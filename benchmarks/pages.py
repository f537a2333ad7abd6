"""The performance page, written from what benchmarks have measured: `python -m benchmarks.pages`.

A benchmark's `--json FILE` in benchmarks/results is a section of docs/reference/performance.md; a test holds the page
against the files, so that no figure on it is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT, Cell, cell_text

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "reference" / "performance.md"
HEAD = """# Performance, measured

<!-- Written by `python -m benchmarks.pages` from benchmarks/results/*.json: run a benchmark with --json, then that. -->

Each section is one run of a benchmark: its figures, with the machine, the versions and how they came about. Claims that
were missed stand beside those that hold. Other machines give other figures: run them on yours.
"""
MOST_ROWS, SOME_ROWS = 64, 10
"""Of a table, that are shown; of one that has more, since nobody reads a hundred."""
SHORT = "Ours, and the fastest of the other engines whose answers are right. Below, all of it."


def page(results: Sequence[Path]) -> str:
    """The page over these files, in their order.

    Raises:
        ValueError: a file is no benchmark's, or of a quick run, whose figures are not to be quoted.
    """
    runs = {path.stem: json.loads(path.read_text()) for path in results}
    sections = [section(found, name) for name, found in runs.items()]  # first: it refuses what is no benchmark's
    rows = [row for name, found in runs.items() for row in summary(found, name)]
    short = ["## In short", "", SHORT, "", *table(rows), ""] if rows else []
    return "\n".join([HEAD, *short, *sections])


def summary(found: Mapping[str, Any], name: str) -> Iterator[dict[str, Cell]]:
    """Ours beside the fastest of the others whose answers are right, for each model; nothing of a run without both."""
    rows = [row for row in found["tables"].get("latency", []) if row.get("ms") and "engine" in row]
    wrong = {_of(row, "engine") for rows in found["tables"].values() for row in rows if row.get("right") == "NO"}
    for setting in dict.fromkeys(_of(row) for row in rows):
        here = [row for row in rows if _of(row) == setting and _of(row, "engine") not in wrong]
        ours = [row for row in here if _is_ours(row)]
        others = [row for row in here if not _is_ours(row)]
        if ours and others:
            fast, peer = (min(side, key=lambda row: float(row["ms"])) for side in (ours, others))
            yield {
                "run": f"[{name}](#{name})", "model": fast["model"], "threads": fast.get("threads"),
                "ours, ms": fast["ms"], "fastest other, ms": peer["ms"], "which": peer["engine"],
                "times as fast": peer["ms"] / fast["ms"],
            }  # fmt: skip


def _of(row: Mapping[str, Any], *more: str) -> tuple[object, ...]:
    """What was timed in this row."""
    return tuple(row.get(name) for name in ("model", "kind", "weights", "past", "threads", *more))


def _is_ours(row: Mapping[str, Any]) -> bool:
    return str(row["engine"]).split()[0] in ("autotune", "tuned", "untuned")


def section(found: Mapping[str, Any], name: str) -> str:
    """One benchmark's run."""
    missing = {"benchmark", "method", "quick", "environment", "tables", "claims"} - found.keys()
    if missing or found["quick"]:
        raise ValueError(f"{name}: {'a quick run' if not missing else 'no ' + ', '.join(sorted(missing))}")
    where = found["environment"]
    cores = ", ".join(map(str, where["affinity"]))
    versions = ", ".join(f"{package} {version}" for package, version in where["versions"].items())
    load = ", ".join(f"{one:.1f}" for one in where["load_average"])
    lines = [f"## {name}", "", found["method"], ""]
    for title, rows in found["tables"].items():
        lines += [f"### {title}", "", *table(rows if len(rows) <= MOST_ROWS else rows[:SOME_ROWS]), ""]
        if len(rows) > MOST_ROWS:
            lines += [f"The first {SOME_ROWS} of {len(rows)} rows; all are in benchmarks/results/{name}.json.", ""]
    if found["claims"]:
        lines += ["### Claims", "", *table([_claim(claim) for claim in found["claims"]]), ""]
    lines += [
        f"{where['model']} ({where['cpu']}), cores {cores}, load {load} when it began; "
        f"Python {where['python']}, {versions}; commit {where['commit']}, {where['date'][:10]}.",
        "",
        f"    {where['command']}",
        "",
    ]
    return "\n".join(lines)


def table(rows: Sequence[Mapping[str, Cell]]) -> list[str]:
    """Lines of a Markdown table; numbers to the right."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    right = [all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in names]
    lines = [names, ["--:" if r else "---" for r in right]]
    lines += [[cell_text(row.get(name)).replace("|", "\\|") for name in names] for row in rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _claim(claim: Mapping[str, Any]) -> dict[str, Cell]:
    verdict = {True: "holds", False: "**missed**", None: "not measured"}[claim["holds"]]
    return {
        "claim": claim["text"],
        "found": None if claim["value"] is None else f"{cell_text(claim['value'])}{claim['unit']}",
        "bound": f"{claim['relation']} {cell_text(claim['bound'])}{claim['unit']}",
        "": verdict,
    }


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=(__doc__ or "").splitlines()[0])
    options.add_argument("-o", "--output", type=Path, default=PAGE)
    given = options.parse_args(arguments)
    given.output.write_text(page(sorted(RESULTS.glob("*.json"))))
    print(f"written to {given.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
