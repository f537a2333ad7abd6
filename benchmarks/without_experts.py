"""What models take when every template of one operator's own is switched off: sketches alone, untuned and tuned.

python -m benchmarks.without_experts resnet50 bert_base efficientnet_b0 --budget 10m

Wants a quiet machine; it takes the budget for each model, and a minute or two.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import onnx

from autotune.measure.timing import latency, spread
from benchmarks import zoo
from benchmarks.engines import Engine, runs_per_turn, time_in_turn
from benchmarks.models import example
from benchmarks.report import ROOT, Report, Row, parser, progress
from benchmarks.trials import measure_model

METHOD = (
    "`benchmarks.only_sketches` is installed as a plugin for some of the processes: no template is left but sketches, "
    "`generic` and `plain`. `autotune tune` runs with it from an empty database. The programs are then loaded "
    "together, each pinned to as many cores as it has threads, and timed in turn; times are medians over all rounds."
)
PLUGIN = "benchmarks.only_sketches"
WITHIN = 0.9
"""Of the speed with all templates, what sketches alone should reach."""


def installed(folder: Path) -> dict[str, str]:
    """Variables of processes for which the plugin is installed, in a folder of its own."""
    info = folder / "only_sketches-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: only-sketches\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[autotune.plugins]\nonly_sketches = {PLUGIN}\n")
    paths = [str(folder), str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def raced(name: str, budget: str, threads: int, rounds: int, folder: Path) -> tuple[Row, list[Row]]:
    """How the tuning went, and a row for each program."""
    (folder / "plugin").mkdir()
    alone = installed(folder / "plugin")
    tuning = measure_model(name, budget, folder, threads, alone)
    model = zoo.build(name)
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    kinds: list[tuple[str, dict[str, object], dict[str, str]]] = [
        ("all templates, untuned", {"database": False}, {}),
        ("sketches, untuned", {"database": False}, alone),
        ("sketches, tuned", {"database": str(folder / "model.sqlite")}, alone),
    ]
    with ExitStack() as stack:
        engines = [
            stack.enter_context(Engine("autotune", path, threads, label=label, options=options, environment=variables))
            for label, options, variables in kinds
        ]
        for engine in engines:
            engine.feed(example(model))
        samples = time_in_turn(engines, rounds, runs_per_turn(engines[0]))
    rows: list[Row] = [
        {"model": name, "program": engine.label, "ms": latency(found) * 1e3, "spread %": spread(found) * 100}
        for engine, found in zip(engines, samples, strict=True)
    ]
    return tuning, rows


def main(arguments: list[str] | None = None) -> int:
    options = parser("without_experts", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.description = __doc__
    options.add_argument("models", nargs="+", choices=zoo.names())
    options.add_argument("--budget", default="10m")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=20)
    given = options.parse_args(arguments)
    report = Report("without_experts", METHOD, given.quick)
    runs, programs = list[Row](), list[Row]()
    for name in given.models:
        progress(f"{name}, {given.threads} threads, {given.budget}")
        with tempfile.TemporaryDirectory(prefix="autotune-without-experts-") as temporary:
            budget, rounds = ("5s", 2) if given.quick else (given.budget, given.rounds)
            tuning, rows = raced(name, budget, given.threads, rounds, Path(temporary))
        runs.append(tuning)
        programs += rows
        times = {str(row["program"]): float(row["ms"] or 0) for row in rows}
        share = times["all templates, untuned"] / times["sketches, tuned"]
        report.claim(f"{name}: speed of tuned sketches by that of all templates", share, "at least", WITHIN)
    report.table("tuning", runs)
    report.table("programs in turn", programs)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
