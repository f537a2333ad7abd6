"""What measurements are worth while another process compiles on the same cores.

python -m benchmarks.disturbance                          50 measurements of each kernel over 10 minutes
python -m benchmarks.disturbance --minutes 2 --times 20   a shorter run
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autotune.measure.builder import build
from autotune.measure.failure import Failure
from autotune.measure.peaks import fma_peak
from autotune.measure.runner import Runner
from autotune.measure.types import MeasureInput, MeasureResult
from autotune.ops import parse_workload
from autotune.search.task import TuningTask
from autotune.target import Target
from benchmarks.report import ROOT, Report, Row, parser, progress

OPERATORS = (
    "conv2d data=1,64,28,28 weight=64,64,3,3 pad=1",
    "matmul a=128,768 b=768,768",
    "add a=1,256,56,56 b=1,256,56,56",
)
WIDTH, PEAK_ERROR = 3.0, 3.0
QUIET_TIMES = 10
PEAK_SECONDS = 2.0
METHOD = (
    "The default schedule of each operator is timed by a runner as `tune` does it, first without, then with another "
    "process of the same user that compiles one kernel after the other and may run on the same cores. Width: 5th to "
    "95th percentile of the reported times by their median, of those that are not marked as disturbed. Peaks: FMA "
    "peaks that are more than 3 % below the best quiet one without being in doubt. Other load on the machine is not "
    "controlled; the table says what the runs without the compiler were like."
)


def compile_on(seed: int) -> None:
    """The neighbour: builds random schedules until it is killed, as an ordinary process whatever we are."""
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    task = TuningTask.of(parse_workload(OPERATORS[0]), Target.parse("native -num-cores=1"))
    rng = random.Random(seed)
    while True:
        build(task.candidate(task.space.sample(rng)))


@contextmanager
def neighbour(there: bool) -> Iterator[None]:
    """Another process that compiles meanwhile, if it is to be there."""
    if not there:
        yield
        return
    with subprocess.Popen([sys.executable, "-m", "benchmarks.disturbance", "--neighbour"], cwd=ROOT) as process:
        try:
            yield
        finally:
            process.kill()


def percentile(values: Sequence[float], share: float) -> float:
    """By linear interpolation."""
    return statistics.quantiles(values, n=100, method="inclusive")[round(100 * share) - 1]


def width(values: Sequence[float]) -> float | None:
    """Percent; None of too few."""
    if len(values) < 2:
        return None
    return 100 * (percentile(values, 0.95) - percentile(values, 0.05)) / statistics.median(values)


def measure(runner: Runner, candidate: MeasureInput) -> MeasureResult:
    built = build(candidate)
    found = built if isinstance(built, Failure) else runner.run(candidate, built)
    if isinstance(found, Failure):
        raise RuntimeError(f"{candidate.workload.describe()}: {found.kind}: {found.message}")
    return found


def run(report: Report, target: Target, times: int, seconds: float) -> None:
    """Fill the report."""
    tasks = [TuningTask.of(parse_workload(text), target) for text in OPERATORS]
    candidates = [task.candidate(task.space.default()) for task in tasks]
    found: dict[tuple[int, bool], list[MeasureResult]] = {}
    peaks: dict[bool, list[tuple[float, bool]]] = {False: [], True: []}
    for compiling, count, pause in ((False, min(times, QUIET_TIMES), 0.0), (True, times, seconds / times)):
        progress("with a compiler beside it" if compiling else "alone")
        with neighbour(compiling), Runner(target) as runner:
            for number in range(count):
                start = time.monotonic()
                for place, candidate in enumerate(candidates):
                    found.setdefault((place, compiling), []).append(measure(runner, candidate))
                peak = fma_peak(target, PEAK_SECONDS)
                peaks[compiling].append((peak.gflops, bool(peak.doubt)))
                if number + 1 < count:
                    time.sleep(max(0.0, start + pause - time.monotonic()))
    report.table("kernels", [_row(place, compiling, results) for (place, compiling), results in found.items()])
    for place, text in enumerate(OPERATORS):
        kept = [result.seconds for result in found[place, True] if not result.disturbed]
        note = f"{len(kept)} of {times} not marked"
        report.claim(f"{text}: width beside a compiler", width(kept), "at most", WIDTH, " %", note)
    best = max(gflops for gflops, _ in peaks[False])
    silent = sum(not doubt and gflops < best * (1 - PEAK_ERROR / 100) for gflops, doubt in peaks[True])
    report.table(
        "FMA peaks",
        [
            {"compiler": compiling, "times": len(rows), "in doubt": sum(doubt for _, doubt in rows),
             "lowest GFLOP/s": min(rows)[0], "highest": max(rows)[0]}
            for compiling, rows in peaks.items()
        ],
    )  # fmt: skip
    report.claim("peaks silently low", silent, "at most", 0)


def _row(place: int, compiling: bool, results: Sequence[MeasureResult]) -> Row:
    kept = [result.seconds for result in results if not result.disturbed]
    every = [result.seconds for result in results]
    return {
        "operator": OPERATORS[place],
        "compiler": compiling,
        "times": len(results),
        "marked": len(results) - len(kept),
        "median µs": 1e6 * statistics.median(kept or every),
        "lowest": 1e6 * min(every),
        "width %": width(kept),
        "with the marked %": width(every),
        "s each": statistics.median(result.wall_seconds for result in results),
    }


def main(arguments: list[str] | None = None) -> int:
    options = parser("disturbance", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--times", type=int, default=50, help="how often each kernel is measured beside the compiler")
    options.add_argument("--minutes", type=float, default=10.0, help="in how long")
    options.add_argument("--threads", type=int, default=1, help="of the kernels")
    options.add_argument("--neighbour", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.neighbour:
        compile_on(0)
    report = Report("disturbance", METHOD, given.quick)
    times, minutes = (3, 0.05) if given.quick else (given.times, given.minutes)
    run(report, Target.parse(f"native -num-cores={given.threads}"), times, 60 * minutes)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
