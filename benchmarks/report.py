"""What a benchmark hands over: its environment, its tables, and the claims it tests, printed and as JSON.

A number without its machine, affinity, versions, commit and method says nothing, so every report carries them. Claims
that do not hold are printed like those that do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, Union

from autotune import machine

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "autotune-compiler", "numpy", "llvmlite", "onnx", "xgboost-cpu", "xgboost", "sqlite-utils",
    "onnxruntime", "openvino", "MNN",
)  # fmt: skip

Cell = Union[str, int, float, bool, None]
Row = Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure that the project promises.

    Attributes:
        text: what is promised.
        value: what was found; None when it could not be measured here, which `note` then explains.
        relation: how value and bound must stand for the claim to hold.
    """

    text: str
    value: float | None
    relation: Literal["at least", "at most"]
    bound: float
    unit: str = ""
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """None when nothing was measured."""
        if self.value is None:
            return None
        return self.value >= self.bound if self.relation == "at least" else self.value <= self.bound

    def __str__(self) -> str:
        verdict = {True: "holds ", False: "MISSED", None: "no figure"}[self.holds]
        found = "-" if self.value is None else f"{cell_text(self.value)}{self.unit}"
        note = f"  ({self.note})" if self.note else ""
        return f"{verdict}  {self.text}: {found}, {self.relation} {cell_text(self.bound)}{self.unit}{note}"


@dataclass
class Report:
    """Collects what a benchmark found; tables are printed as they come.

    Args:
        name: of the benchmark.
        method: how the figures come about, for readers who see nothing but the JSON.
        quick: the run was cut short; its figures prove that the benchmark works, and no more.
    """

    name: str
    method: str
    quick: bool = False
    tables: dict[str, list[dict[str, Cell]]] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    environment: dict[str, object] = field(default_factory=lambda: environment())

    def table(self, title: str, rows: Sequence[Row]) -> None:
        """Add rows to a table and print them."""
        self.tables.setdefault(title, []).extend(dict(row) for row in rows)
        print(f"\n{title}\n{format_table(rows)}", flush=True)

    def claim(
        self, text: str, value: float | None, relation: Literal["at least", "at most"], bound: float,
        unit: str = "", note: str = "",
    ) -> None:  # fmt: skip
        self.claims.append(Claim(text, value, relation, bound, unit, note))

    def to_json(self) -> str:
        return json.dumps(
            {
                "benchmark": self.name,
                "method": self.method,
                "quick": self.quick,
                "environment": self.environment,
                "tables": self.tables,
                "claims": [{**asdict(claim), "holds": claim.holds} for claim in self.claims],
            },
            indent=1,
        )

    def finish(self, path: Path | None) -> None:
        """Print the claims, and write everything to `path`."""
        print(f"\n{self.name}: {self.environment['model']}, commit {self.environment['commit']}")
        print(f"method: {self.method}")
        if self.quick:
            print("A quick run: it shows that the benchmark works; its figures are not to be quoted.")
        for claim in self.claims:
            print(claim)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.to_json() + "\n")
            print(f"written to {path}")


def parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """A command line with the options that every benchmark has."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=(doc or "").splitlines()[0])
    made.add_argument("--quick", action="store_true", help="a short run on small problems, to see that it works")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the figures and their environment to FILE")
    return made


def progress(text: str) -> None:
    """What happens now, on standard error."""
    print(text, file=sys.stderr, flush=True)


def environment() -> dict[str, object]:
    """Where and with what a benchmark ran."""
    host = machine.this_machine()
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": " ".join([f"python -m benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]]),
        "commit": commit(),
        "model": host.model,
        "cpu": host.cpu,
        "affinity": list(host.cpus),
        "quota": host.quota,
        "allowed_cores": host.allowed_cores,
        "caches": asdict(host.caches),
        "memory_bytes": host.memory_bytes,
        "load_average": list(os.getloadavg()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := installed(name))},
    }


def installed(package: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit(root: Path = ROOT) -> str:
    """The commit of the working tree, "+" behind it when files differ; "unknown" outside a repository."""
    try:
        found = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found + ("+" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def format_table(rows: Sequence[Row]) -> str:
    """Columns in the order of their first appearance, notes last; numbers to the right."""
    if not rows:
        return "(nothing)"
    names = sorted(dict.fromkeys(name for row in rows for name in row), key=lambda name: name == "note")
    cells = [[cell_text(row.get(name)) for name in names] for row in rows]
    right = [all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in names]
    widths = [max(len(name), *(len(line[n]) for line in cells)) for n, name in enumerate(names)]
    lines = [names, *cells]
    return "\n".join(
        "  ".join(text.rjust(width) if r else text.ljust(width) for text, width, r in zip(line, widths, right)).rstrip()
        for line in lines
    )


def cell_text(value: Cell) -> str:
    """A value as tables have it: three digits, and a word where there is nothing to say."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 or abs(value) >= 1e6 else f"{value:.0f}"
    return str(value)
