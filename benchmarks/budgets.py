"""What tuning a model reaches in how much time: each budget from an empty database, the programs then timed in turn.

python -m benchmarks.budgets resnet50 --seconds 60 600                   within 2 % of ten minutes after one?
python -m benchmarks.budgets resnet18 --threads 2 --seconds 10 60 661    as TVM's MetaSchedule was given

Wants a quiet machine; it takes the budgets together, and a few minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune.measure.timing import latency, spread
from benchmarks import zoo
from benchmarks.engines import Engine, EngineError, runs_per_turn, time_in_turn
from benchmarks.models import example
from benchmarks.report import Report, Row, parser, progress
from benchmarks.trials import OWN, measure_model

METHOD = (
    "`autotune tune` of a zoo model on a native target, once for each budget and each time from an empty database, in "
    "processes of its own; seconds are those of the whole run. The programs that the databases give, the untuned one "
    "and ONNX Runtime are then loaded together, each pinned to as many cores as it has threads, and timed in turn; "
    "times are medians over all rounds. Choosing: what search and cost model took of the run."
)
SOON, WITHIN = 60.0, 1.02
"""After so many seconds, the result is to be no further than that from the longest budget's."""
TRIALS_A_SECOND, CHOOSING = 15.0, 0.1
PEER = "onnxruntime"


def raced(
    path: Path, feeds: dict[str, NDArray[np.float32]], threads: int, databases: dict[str, Path], rounds: int
) -> list[Row]:
    """A row for each database's program, the untuned one and the peer.

    Args:
        path: of the ONNX file. `databases`: by label.
    """
    entries: list[tuple[str, str, dict[str, object]]] = [("untuned", "autotune", {"database": False})]
    entries += [(label, "autotune", {"database": str(database)}) for label, database in databases.items()]
    rows: list[Row] = []
    with ExitStack() as stack:
        engines = []
        for label, kind, options in [*entries, (PEER, PEER, {})]:
            try:
                engine = stack.enter_context(Engine(kind, path, threads, label=label, options=options))
                engine.feed(feeds)
                engines.append(engine)
            except EngineError as error:
                rows.append({"program": label, "note": str(error)})
        samples = time_in_turn(engines, rounds, runs_per_turn(engines[0]))
    for engine, found in zip(engines, samples, strict=True):
        rows.append({"program": engine.label, "ms": latency(found) * 1e3, "spread %": spread(found) * 100})
    return rows


def main(arguments: list[str] | None = None) -> int:
    options = parser("budgets", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.description = __doc__
    options.add_argument("model", choices=zoo.names())
    options.add_argument("--seconds", type=int, nargs="+", default=[60, 600], metavar="N", help="[default: 60 600]")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=20)
    given = options.parse_args(arguments)
    budgets = [5] if given.quick else sorted(set(given.seconds))
    report = Report("budgets", METHOD, given.quick)
    with tempfile.TemporaryDirectory(prefix="autotune-budgets-") as temporary:
        folder = Path(temporary)
        runs: list[Row] = []
        for seconds in budgets:
            progress(f"{given.model}, {given.threads} threads, {seconds} s")
            (folder / str(seconds)).mkdir()
            runs.append(measure_model(given.model, f"{seconds}s", folder / str(seconds), given.threads))
        report.table("tuning", runs)
        model = zoo.build(given.model)
        path = folder / "model.onnx"
        onnx.save(model, path)
        databases = {f"after {seconds} s": folder / str(seconds) / "model.sqlite" for seconds in budgets}
        rows = raced(path, example(model), given.threads, databases, 2 if given.quick else given.rounds)
    report.table("programs in turn", rows)
    times = {str(row["program"]): float(row["ms"] or 0) for row in rows if "ms" in row}
    longest = times.get(f"after {budgets[-1]} s")
    for seconds in budgets[:-1]:
        found = times.get(f"after {seconds} s")
        if seconds >= SOON and found and longest:
            report.claim(f"time after {seconds} s over that after {budgets[-1]} s", found / longest, "at most", WITHIN)
    for seconds, run in zip(budgets, runs, strict=True):
        report.claim(f"verified trials a second in {seconds} s", float(run["verified / s"] or 0), "at least",
                     TRIALS_A_SECOND)  # fmt: skip
        chosen = sum(float(run[f"{part} %"] or 0) for part in OWN) / 100
        report.claim(f"search and model in {seconds} s, share of the time", chosen, "at most", CHOOSING)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
