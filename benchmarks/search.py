"""Compares search strategies exactly, by replaying spaces that benchmarks.record_space measured: no kernel runs.

python -m benchmarks.search benchmarks/spaces                                all strategies, 20 seeds
python -m benchmarks.search DIR --strategy guided --seeds 5 --plot search.png
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from autotune import machine
from autotune.cost_model.adapted import AdaptedModel
from autotune.search.recorded_space import RecordedSpace
from autotune.search.simulation import simulate
from autotune.search.space_recording import SpaceRecording
from autotune.search.strategies import STRATEGIES, make_strategy
from benchmarks.record_space import recorded
from benchmarks.report import Report, Row, parser, progress

METHOD = (
    "Recorded spaces are replayed: a trial's time is the one that was measured once, so strategies differ in what they "
    "ask for and in nothing else. Trials come in batches of 8, observed after each. Strategies start from nothing "
    "(no default, unless --default; no trained model). `to 98 %`: the median over the seeds of the number of trials "
    "until one is within 2 % of the fastest recorded config; `>` means that half of the runs did not come there; "
    "chance goes on until all is seen. "
    "`after N`: the median of the fastest recorded time / the best time among the first N trials."
)
MARKS = (16, 32, 64, 128)
CLOSE = 0.98
HARD = 100
"""Trials that chance needs, from which on a search is to need a quarter of them."""
GRID, RANDOM = "grid", "random"


def curve(path: Path, strategy: str, seed: int, trials: int, default: bool) -> list[float]:
    """Best speed so far after each trial of one run, relative to the fastest recorded config."""
    space = RecordedSpace(SpaceRecording.load(path), defaults_first=default)
    simulation = space.simulation
    searcher = make_strategy(strategy, space, AdaptedModel(None, seed=seed), random.Random(f"{path.name}/{seed}"))
    done = simulate(searcher, simulation, trials)
    return [simulation.best / cost for cost in accumulate((trial.cost for trial in done), min)]


def reached(curves: Sequence[Sequence[float]], share: float) -> float:
    """Median number of trials until a run's speed is that share of the best; infinity when half of them never do."""
    return median(next((n for n, speed in enumerate(run, 1) if speed >= share), float("inf")) for run in curves)


def row(name: str, strategy: str, points: int, curves: Sequence[Sequence[float]], trials: int) -> Row:
    until = reached(curves, CLOSE)
    marks = {
        f"after {mark}": median(run[min(mark, len(run)) - 1] for run in curves) for mark in MARKS if mark <= trials
    }
    return {
        "task": name, "points": points, "strategy": strategy,
        "to 98 %": f"> {trials}" if until == float("inf") else int(until), **marks,
    }  # fmt: skip


def plot(curves: dict[str, dict[str, list[list[float]]]], path: Path) -> None:
    """One panel per task: median speed against trials, one line per strategy."""
    from matplotlib.figure import Figure

    columns = min(4, len(curves))
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(4 * columns, 3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flat
    for panel, (task, by_strategy) in zip(panels, curves.items(), strict=False):
        for strategy, runs in by_strategy.items():
            length = min(map(len, runs))
            panel.plot(range(1, length + 1), [median(run[n] for run in runs) for n in range(length)], label=strategy)
        panel.axhline(CLOSE, color="grey", linewidth=0.5)
        panel.set(title=task, xscale="log", ylim=(0.4, 1.02), xlabel="trials", ylabel="speed of the best / fastest")
    next(iter(figure.axes)).legend()
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> int:
    options = parser("search", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.description = __doc__
    options.add_argument("spaces", type=Path, metavar="DIR", help="what benchmarks.record_space wrote")
    options.add_argument("--strategy", action="append", choices=STRATEGIES, help="default: all but grid")
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--trials", type=int, default=128)
    options.add_argument("--default", action="store_true", help="measure the task's default first, as tuning does")
    options.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves (needs matplotlib)")
    given = options.parse_args(arguments)
    if given.plot and find_spec("matplotlib") is None:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib")
    paths = recorded(given.spaces)[: 1 if given.quick else None]
    strategies = given.strategy or [name for name in STRATEGIES if name != GRID]
    seeds, trials = (2, 32) if given.quick else (given.seeds, given.trials)
    report = Report("search", METHOD, given.quick)
    drawn: dict[str, dict[str, list[list[float]]]] = {}
    rows: list[Row] = []
    with ProcessPoolExecutor(machine.allowed_cores(), get_context("spawn")) as pool:
        for path in paths:
            recording = SpaceRecording.load(path)
            progress(recording.name)
            # Chance goes on to the end: it is cheap to replay, and what it needs is what others are held against.
            most = dict.fromkeys(strategies, trials) | {RANDOM: len(recording.points)}
            found = {
                name: [pool.submit(curve, path, name, seed, most[name], given.default) for seed in range(seeds)]
                for name in strategies
            }
            curves = {name: [future.result() for future in futures] for name, futures in found.items()}
            rows += [row(recording.name, name, len(recording.points), runs, trials) for name, runs in curves.items()]
            drawn[recording.name] = curves
    report.table("strategies", rows)
    report.table("over all tasks", [_overall(name, drawn, trials) for name in strategies])
    _claims(report, drawn, trials)
    if given.plot:
        plot(drawn, given.plot)
    report.finish(given.json)
    return 0


def _overall(strategy: str, drawn: dict[str, dict[str, list[list[float]]]], trials: int) -> Row:
    """Geometric figures would hide a task that fails, so: the median over the tasks, and the worst."""
    runs = [curves[strategy] for curves in drawn.values()]
    until = [min(reached(curves, CLOSE), 2.0 * trials) for curves in runs]
    marks: dict[str, float] = {}
    for mark in (mark for mark in MARKS if mark <= trials):
        speeds = [median(run[min(mark, len(run)) - 1] for run in curves) for curves in runs]
        marks |= {f"after {mark}": median(speeds), f"worst after {mark}": min(speeds)}
    return {"strategy": strategy, "to 98 %, mean": sum(until) / len(until), **marks}


def _claims(report: Report, drawn: dict[str, dict[str, list[list[float]]]], trials: int) -> None:
    for task, curves in drawn.items():
        if "guided" not in curves or trials < 64:
            continue
        report.claim(f"{task}: median best after 64", median(run[min(64, len(run)) - 1] for run in curves["guided"]),
                     "at least", CLOSE)  # fmt: skip
        blind = reached(curves[RANDOM], CLOSE) if RANDOM in curves else 0.0
        if blind >= HARD:
            report.claim(f"{task}: trials to 98 % over random's, {blind:.0f}", reached(curves["guided"], CLOSE) / blind,
                         "at most", 0.25)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
