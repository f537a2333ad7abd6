"""Random cases against references: schedules of random primitives, configs of every template, small ONNX models.

python -m benchmarks.fuzz                  12,000 cases
python -m benchmarks.fuzz --cases 100000 --seed 1000000
python -m benchmarks.fuzz --templates 20000     configs of templates only
python -m benchmarks.fuzz --graphs 5000         ONNX models only
python -m benchmarks.fuzz --quantized 10000     quantised graphs and products of bytes only
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Report, Row, parser, progress
from tests.property.fuzz import GRAPHS, QUANTIZED, SCHEDULES, TEMPLATES, failures, tally
from tests.property.template_check import templates

CASES = 12_000
LEAST = 10_000
TARGETS = ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2")
METHOD = (
    "Half of the cases: a random computation (all dtypes, padding, reductions, scans, indirect reads) under a random "
    "sequence of schedule primitives. Half: each template in turn, a random workload of its family, random knobs, "
    "random layouts for operands, either vector width. Sizes include 1, primes and less than a vector. A case is built "
    "and run in an isolated process with 1, 2 and 3 threads, fresh and dirty scratch, guard pages around every buffer, "
    "and compared with float64. Refused: a config that says it has no schedule, in tuning a typed failure. Models: "
    "random operators, shapes, dtypes, opsets (6 to 28) and fusable patterns, compiled whole, run twice and compared "
    "with onnx.reference. Quantised: graphs whose scales are powers of two, compiled, and tilings of products of bytes "
    "for one of AVX-512 VNNI, AVX-VNNI and AVX2, against exact arithmetic."
)


@dataclass(frozen=True, slots=True)
class Kind:
    """Cases that can be run alone, and how many of them the project promises to be right."""

    name: str
    entry: str
    least: int


MODELS = Kind("ONNX models", GRAPHS, 5000)
CONFIGS = Kind("configs of templates", TEMPLATES, 20_000)
BYTES = Kind("quantised graphs and products of bytes", QUANTIZED, 10_000)


def count(name: str, cases: Generator[tuple[int, str], None, int], number: int) -> Row:
    """Run the cases; failures are printed as they come."""
    begun = time.monotonic()
    found, refused = tally(cases, lambda line: progress(f"{name}, {line}"))
    seconds = time.monotonic() - begun
    return {"kind": name, "cases": number, "failures": found, "refused": refused, "seconds": seconds}


def only(kind: Kind, cases: int, seed: int, out: Path | None) -> int:
    """Cases of one kind."""
    report = Report("fuzz", METHOD)
    found = count(kind.name, failures(range(seed, seed + cases), TARGETS[0], entry=kind.entry), cases)
    report.table("property cases", [found])
    report.claim(f"{kind.name} run", cases, "at least", kind.least)
    report.claim(f"{kind.name} that came out wrong", int(found["failures"] or 0), "at most", 0)
    report.claim(f"{kind.name} refused", int(found["refused"] or 0), "at most", 0)
    report.finish(out)
    return 1 if found["failures"] else 0


def main(arguments: list[str] | None = None) -> int:
    options = parser("fuzz", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--cases", type=int, default=CASES)
    options.add_argument("--graphs", type=int, metavar="N", help="random ONNX models instead, that many")
    options.add_argument("--templates", type=int, metavar="N", help="configs of templates instead, that many")
    options.add_argument("--quantized", type=int, metavar="N", help="quantised graphs and products instead, that many")
    options.add_argument("--seed", type=int, default=0, help="number of the first case")
    given = options.parse_args(arguments)
    for kind, number in ((MODELS, given.graphs), (CONFIGS, given.templates), (BYTES, given.quantized)):
        if number:
            return only(kind, number, given.seed, given.json)
    half = (100 if given.quick else given.cases) // 2
    report = Report("fuzz", METHOD, given.quick)
    rows: list[Row] = []
    for number, target in enumerate(TARGETS):
        start = given.seed + number * (half // 2)
        seeds = range(start, start + half // 2)
        name = f"schedules, {target}"
        progress(name)
        rows.append(count(name, failures(seeds, target, entry=SCHEDULES), len(seeds)))
    seeds = range(given.seed, given.seed + half)
    name = f"configs of {len(templates())} templates, both targets"
    progress(name)
    rows.append(count(name, failures(seeds, TARGETS[0], entry=TEMPLATES), len(seeds)))
    report.table("property cases", rows)
    report.claim("property cases run", sum(int(row["cases"] or 0) for row in rows), "at least", LEAST)
    report.claim("property cases that failed", sum(int(row["failures"] or 0) for row in rows), "at most", 0)
    report.finish(given.json)
    return 1 if any(row["failures"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
