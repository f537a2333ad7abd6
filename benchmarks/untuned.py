"""How fast kernels are that nobody has tuned: the first choice of all templates beside the best that is known.

python -m benchmarks.untuned benchmarks/learned/zen5.jsonl.xz                tasks that the model learned from
python -m benchmarks.untuned benchmarks/learned/unseen/zen5.jsonl.xz         and tasks that it never saw

The files are those of benchmarks.lessons, measured on this CPU; each of their targets is a table. The best of them and
the untuned choice are built, verified and timed again, in turn.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from pathlib import Path

from autotune import machine
from autotune.measure.builder import Builder
from autotune.measure.failure import Failure
from autotune.measure.runner import Runner
from autotune.measure.types import BuildResult, MeasureInput
from autotune.ops import parse_workload
from autotune.search.lesson_file import Measured, load
from autotune.search_spaces.space.config import TEMPLATE, Config
from autotune.search_spaces.space.registry import task_space
from autotune.target import Target
from benchmarks.lesson_tasks import TASKS, UNSEEN
from benchmarks.prebuilt import add_turns, turn_of
from benchmarks.report import Report, Row, parser, progress

MEAN, WORST = 0.95, 0.80
ROUNDS = 12
METHOD = (
    "Of each task the untuned choice, without a trial, and the fastest config of the file are timed in turn; a time is "
    "the minimum of the rounds. The share is the lower of the two times over that of the untuned choice. Means are "
    "geometric, by kind of task."
)
KINDS = {line: kind for tasks in (TASKS, UNSEEN) for kind, lines in tasks.items() for line in lines}


def best_of(measured: list[Measured]) -> Config:
    """The fastest config of one task, with the name of its template."""
    times = {c.replace(**{TEMPLATE: one.template}): s for one in measured for c, s in one.seconds.items()}
    return min(times, key=lambda config: times[config])


def compared(measured: list[Measured], target: Target, given: argparse.Namespace) -> list[Row]:
    """A row for each task of one target.

    Args:
        given: the options of `add_turns`.
    """
    rows: list[Row] = []
    with Runner(target) as runner, Builder(machine.allowed_cores(), timeout=60.0) as builder:
        futures = {}
        for line in dict.fromkeys(one.workload for one in measured):
            workload = parse_workload(line)
            best = best_of([one for one in measured if one.workload == line])
            configs = dict.fromkeys((task_space(workload, target).default(), best))
            inputs = [MeasureInput(workload, config, None, target) for config in configs]
            futures[line] = [(candidate, builder.submit(candidate)) for candidate in inputs]
        built = {line: [(candidate, future.result()) for candidate, future in each] for line, each in futures.items()}
        with turn_of(given, runner)():
            for line, each in built.items():
                good = [(candidate, build) for candidate, build in each if isinstance(build, BuildResult)]
                found = runner.compare(good[0][0], [build for _, build in good], ROUNDS)
                times = {c.config: math.inf if isinstance(r, Failure) else r.seconds for (c, _), r in zip(good, found)}
                untuned, *others = (times.get(candidate.config, math.inf) for candidate, _ in each)
                names = [candidate.config.template or "" for candidate, _ in each]
                rows.append(
                    {
                        "kind": KINDS.get(line, "other"),
                        "task": line,
                        "untuned": names[0],
                        "µs": untuned * 1e6,
                        "best": names[-1],
                        "best µs": min(untuned, *others) * 1e6 if others else untuned * 1e6,
                        "share": min([untuned, *others]) / untuned,
                    }
                )
    return rows


def main(arguments: list[str] | None = None) -> int:
    options = parser("untuned", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.description = __doc__
    options.add_argument("files", type=Path, nargs="+", metavar="FILE", help="what benchmarks.lessons wrote")
    add_turns(options)
    given = options.parse_args(arguments)
    report = Report("untuned", METHOD, given.quick)
    for path in given.files:
        measured = [one for each in load(path) if (one := each.today()).seconds]
        for target in dict.fromkeys(one.target for one in measured):
            title = f"{path.name}, {target}"
            progress(title)
            of_target = [one for one in measured if one.target == target]
            lines = list(dict.fromkeys(one.workload for one in of_target))[: 3 if given.quick else None]
            rows = compared([one for one in of_target if one.workload in lines], target, given)
            report.table(title, sorted(rows, key=lambda row: float(row["share"] or 0)))
            shares = {kind: [float(r["share"] or 0) for r in rows if r["kind"] == kind] for kind in
                      dict.fromkeys(str(row["kind"]) for row in rows)}  # fmt: skip
            report.table(
                f"{title}, by kind",
                [{"kind": k, "tasks": len(s), "mean": _mean(s), "worst": min(s)} for k, s in shares.items()],
            )
            every = [share for each in shares.values() for share in each]
            report.claim(f"{title}: geometric mean of {len(every)}", _mean(every), "at least", MEAN)
            report.claim(f"{title}: worst", min(every), "at least", WORST)
    report.finish(given.json)
    return 0


def _mean(shares: list[float]) -> float:
    return statistics.geometric_mean(shares) if min(shares) > 0 else 0.0


if __name__ == "__main__":
    sys.exit(main())
