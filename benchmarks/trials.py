"""How many verified trials a second tuning makes, and where its time goes: one builder process, one runner process.

python -m benchmarks.trials                        one convolution after the other, 200 trials each
python -m benchmarks.trials --op "matmul a=512,512 b=512,512" --trials 64
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import onnx

from autotune.measure.builder import Builder
from autotune.measure.pipeline import Pipeline
from autotune.measure.runner import Runner
from autotune.ops import parse_workload
from autotune.records import Database
from autotune.search.budget import Budget
from autotune.search.task import TuningTask
from autotune.search.tuner import tune
from autotune.target import Target
from benchmarks import zoo
from benchmarks.language import CONVOLUTIONS
from benchmarks.report import ROOT, Report, Row, parser, progress

BOUND = 12.0
MODEL_BOUND = 8.0
OWN = ("search", "model")
"""Parts of a run that decide what to try; all else is there to try it."""
METHOD = (
    "The tuning loop with its usual options (XGBoost-guided evolution, finalists timed again at the end) over one task "
    "at one thread, with one builder and one runner process, from an empty database. Verified trials are those whose "
    "output was compared with the reference and timed; failures do not count. Seconds are those of the whole run, "
    "start of the processes included. Shares: of the tuner's own time; build and run are the processes' and overlap it."
)


def measure(text: str, trials: int, database: Path) -> Row:
    """Tune one task; its trials per second and time shares."""
    target = Target.parse("native -num-cores=1")
    task = TuningTask.of(parse_workload(text), target)
    start = time.perf_counter()
    with Database.open(database) as opened, Runner(target) as runner, Builder(1) as builder:
        pipeline = Pipeline(builder, runner, ahead=4, take_turns=False)
        outcome = tune([task], pipeline=pipeline, database=opened, budget=Budget(trials=trials))
        seconds = time.perf_counter() - start
        records = [record for record in opened.trials(task.workload.key, target.key) if record.verified]
    (found,) = outcome.tasks
    return {
        "task": text,
        "trials": found.trials,
        "verified": len(records),
        "seconds": seconds,
        "verified / s": len(records) / seconds,
        "GFLOP/s": found.gflops,
        "over default": found.speedup,
        **{f"{part} %": 100 * share for part, share in outcome.shares().items()},
    }


def measure_model(
    name: str, budget: str, folder: Path, threads: int = 1, environment: Mapping[str, str] | None = None
) -> Row:
    """Tune a whole model by the command line, from an empty database, which it leaves in the folder: model.sqlite.

    Args:
        environment: variables of the processes besides our own.
    """
    path, database = folder / f"{name}.onnx", folder / "model.sqlite"
    onnx.save(zoo.build(name), path)
    command = [sys.executable, "-m", "autotune", "tune", "--model", str(path)]
    command += ["--target", f"native -num-cores={threads}"]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--db", str(database), "--budget", budget, "--json"],
        check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})},
    )  # fmt: skip
    seconds = time.perf_counter() - start
    found = json.loads(done.stdout)
    with Database.open(database, read_only=True) as opened:
        verified = sum(summary.verified for summary in opened.workloads())
    return {
        "task": f"{name}, {len(found['tasks'])} kernels",
        "trials": found["new_trials"],
        "verified": verified,
        "seconds": seconds,
        "verified / s": verified / seconds,
        **{f"{part} %": 100 * share for part, share in found["shares"].items()},
    }


def main(arguments: list[str] | None = None) -> int:
    options = parser("trials", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--op", action="append", help="an operator as `autotune tune --op` takes it; may be repeated")
    options.add_argument("--trials", type=int, default=200)
    options.add_argument("--model", choices=zoo.names(), help="a whole model instead, for --budget")
    options.add_argument("--budget", default="5m")
    given = options.parse_args(arguments)
    texts = given.op or list(CONVOLUTIONS.values())[: 1 if given.quick else 6]
    report = Report("trials", METHOD, given.quick)
    rows = []
    bound = BOUND
    with tempfile.TemporaryDirectory(prefix="autotune-trials-") as folder:
        if given.model:
            bound, texts = MODEL_BOUND, []
            progress(f"{given.model}, {given.budget}")
            rows.append(measure_model(given.model, "5s" if given.quick else given.budget, Path(folder)))
        for number, text in enumerate(texts):
            progress(text)
            rows.append(measure(text, 12 if given.quick else given.trials, Path(folder) / f"{number}.sqlite"))
    report.table("tuning", rows)
    for row in rows:
        report.claim(f"verified trials per second, {row['task']}", float(row["verified / s"] or 0), "at least", bound)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
