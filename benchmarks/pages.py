"""The performance page, written from what benchmarks have measured: `python -m benchmarks.pages`.

A benchmark's `--json FILE` in benchmarks/results is a section of docs/reference/performance.md; a test holds the page
against the files, so that no figure on it is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
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


def page(results: Sequence[Path]) -> str:
    """The page over these files, in their order.

    Raises:
        ValueError: a file is no benchmark's, or of a quick run, whose figures are not to be quoted.
    """
    return "\n".join([HEAD, *(section(json.loads(path.read_text()), path.stem) for path in results)])


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
        lines += [f"### {title}", "", *table(rows), ""]
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
