"""A sweep of architectures exported to ONNX: do they compile, are they right, are they faster than ONNX Runtime?

python -m benchmarks.breadth FOLDER              all three steps over all architectures, table and claims
python -m benchmarks.breadth FOLDER timm/ gpt2   those whose names contain one of the texts
python -m benchmarks.breadth FOLDER --step time  one step: export (needs the extra `breadth`), check, time, table

Exported files stay in FOLDER, beside what was found; a later call does what is not done yet. After a change,
`--again` repeats a step, and `--failed` repeats it where it did not succeed or ours was slower.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.breadth.architecture import Architecture
from benchmarks.breadth.isolated import isolated
from benchmarks.report import Report, Row, parser, progress

FAMILIES = ("rows", "planes", "language", "diffusion", "vision")
STEPS = ("export", "check", "time", "table")
METHOD = (
    "Networks of torch, torchvision, timm, transformers and diffusers with seeded random weights, about half exported "
    "by torch.export, half by tracing; about half of those that can with open axes. Each is exported, checked and "
    "timed in a process of its own. Errors are of an output's range, against ONNX Runtime; beyond 1e-4 against "
    "float64. Speed-up: median over rounds of ONNX Runtime's time by ours, one thread, untuned, in turn; steps of "
    "decoders are given what came out of the step before. Turns of decoders are checked by conversations of two "
    "sequences: a prompt and runs of 1 to 12 tokens, right and in few programs."
)
Found = dict[str, Any]


class Folder:
    """Where a sweep's files are: per architecture a folder with the model, its inputs and FOUND."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, name: str) -> Path:
        return self.root / name

    def names(self) -> list[str]:
        """Of what was exported, or tried."""
        return sorted(str(path.parent.relative_to(self.root)) for path in self.root.glob("*/*/found.json"))

    def read(self, name: str) -> Found:
        path = self.of(name) / "found.json"
        found: Found = json.loads(path.read_text()) if path.exists() else {}
        return found

    def write(self, name: str, found: Found) -> None:
        path = self.of(name) / "found.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")


def architectures() -> Iterator[Architecture]:
    """Of all families; imports torch."""
    for family in FAMILIES:
        yield from import_module(f"benchmarks.breadth.{family}").architectures()


def succeeded(step: str, found: Found) -> bool:
    """Whether a step was done, with nothing to complain of."""
    done = found.get(step)
    if done is None or "failed" in done:
        return False
    return {"check": done.get("right"), "time": done.get("speedup", 0) >= 1}.get(step, True) is True


def chosen(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The names that contain a pattern; all without patterns."""
    return [name for name in names if not patterns or any(pattern in name for pattern in patterns)]


def export_all(folder: Folder, given: argparse.Namespace) -> None:
    """Export what is not there."""
    from benchmarks.breadth.export import export, warm

    asked = [one for one in architectures() if chosen([one.name], given.patterns)]
    missing = [one for one in asked if wanted("export", folder.read(one.name), given)]
    if missing:
        warm()
    for architecture in missing:
        name = architecture.name
        done = isolated(export, architecture, folder.of(name), seconds=given.seconds, memory=given.memory << 30)
        folder.write(name, {"export": done})
        progress(f"{name}: {done.get('why') or done['exporter']}")


def wanted(step: str, found: Found, given: argparse.Namespace) -> bool:
    """Whether a step is to be done."""
    return step not in found or given.again or (given.failed and not succeeded(step, found))


def check_all(folder: Folder, given: argparse.Namespace) -> None:
    """Compile and compare what was exported."""
    from benchmarks.breadth.judge import check

    for name in chosen(folder.names(), given.patterns):
        found = folder.read(name)
        if "failed" in found["export"] or not wanted("check", found, given):
            continue
        done = isolated(
            check, folder.of(name), found["export"]["axes"], seconds=given.seconds, memory=given.memory << 30
        )
        folder.write(name, {**found, "check": done})
        verdict = "right" if done.get("right") else f"WRONG {done.get('errors')}"
        progress(f"{name}: {done.get('why') or verdict}")


def time_all(folder: Folder, given: argparse.Namespace) -> None:
    """Time what compiles."""
    from benchmarks.breadth.judge import race

    for name in chosen(folder.names(), given.patterns):
        found = folder.read(name)
        if "failed" in found.get("check", {"failed": ""}) or not wanted("time", found, given):
            continue
        axes = found["export"]["axes"]
        done = isolated(race, folder.of(name), axes, given.rounds, seconds=given.seconds, memory=given.memory << 30)
        folder.write(name, {**found, "time": done})
        progress(f"{name}: {done.get('why') or round(done['speedup'], 2)}")


def table(folder: Folder, given: argparse.Namespace) -> Report:
    """What was found of all architectures, and what is claimed of them."""
    report = Report("breadth", METHOD, given.quick)
    rows, all_ = [], {name: folder.read(name) for name in chosen(folder.names(), given.patterns)}
    for name, found in all_.items():
        rows.append(_row(name, found))
    report.table("architectures", rows)
    exported = [found for found in all_.values() if "failed" not in found["export"]]
    checked = [found["check"] for found in exported if "check" in found]
    timed = [found["time"]["speedup"] for found in exported if "speedup" in found.get("time", {})]
    report.claim("architectures exported", len(exported), "at least", 200)
    report.claim("that do not compile", sum("failed" in one for one in checked), "at most", 0)
    report.claim("that are wrong", sum("failed" not in one and not one["right"] for one in checked), "at most", 0)
    report.claim("slower than ONNX Runtime", sum(one < 1 for one in timed), "at most", 0, note=f"of {len(timed)} timed")
    mean = statistics.geometric_mean(timed) if timed else None
    report.claim("geometric mean of the speed-ups", mean, "at least", 1, "x")
    return report


def _row(name: str, found: Found) -> Row:
    export, check, time = (found.get(step, {}) for step in ("export", "check", "time"))
    failed = next((f"{one['failed']}: {one['why']}" for one in (export, check, time) if "failed" in one), "")
    return {
        "architecture": name,
        "exporter": export.get("exporter"),
        "open": bool(export["axes"]) if "axes" in export else None,
        "nodes": export.get("nodes"),
        "compile s": check.get("seconds"),
        "error": max((one.get("peer", 0.0) for one in check["errors"].values()), default=None)
        if "errors" in check
        else None,
        "right": check.get("right"),
        "ours ms": time["ours"] * 1e3 if "ours" in time else None,
        "ORT ms": time["peer"] * 1e3 if "peer" in time else None,
        "speed-up": time.get("speedup"),
        "note": failed[:160],
    }


def main(arguments: list[str] | None = None) -> int:
    options = parser("breadth", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.description = __doc__
    options.add_argument("folder", type=Path, metavar="FOLDER")
    options.add_argument("patterns", nargs="*", metavar="TEXT")
    options.add_argument("--step", choices=STEPS, help="default: all")
    options.add_argument("--again", action="store_true", help="also what was done")
    options.add_argument("--failed", action="store_true", help="also what did not succeed")
    options.add_argument("--seconds", type=float, default=300, help="of wall time for a step of one architecture")
    options.add_argument("--memory", type=int, default=16, help="GiB of address space for one")
    options.add_argument("--rounds", type=int, default=10, help="turns of each engine")
    given = options.parse_intermixed_args(arguments)
    folder = Folder(given.folder)
    for step, work in (("export", export_all), ("check", check_all), ("time", time_all)):
        if given.step in (None, step):
            work(folder, given)
    if given.step in (None, "table"):
        table(folder, given).finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
