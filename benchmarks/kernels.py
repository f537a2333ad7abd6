"""Operator by operator: ours against ONNX Runtime, OpenVINO (f32) and MNN inside small models, and the roofline.

python -m benchmarks.kernels                              every case, 1 and 2 threads, untuned
python -m benchmarks.kernels --group depthwise --threads 1
python -m benchmarks.kernels --tune 20s --db FRESH.sqlite --plot kernels.svg
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune import machine
from autotune.measure.peaks import FmaPeak, Peaks, measure_peaks
from autotune.measure.timing import latency, speedup, spread
from autotune.target import Target
from benchmarks.engines import PEERS, Engine, EngineError, runs_per_turn, time_in_turn
from benchmarks.kernel_cases import Case, cases
from benchmarks.models import tune
from benchmarks.report import Report, Row, parser, progress

METHOD = (
    "Each operator runs several times in one small model (a chain, or a fan from one input), each with its own "
    "weights; time is that of the model over the number of operators. Each engine in its own process, pinned to "
    "its cores, timed in turn through Python's run(), medians. An engine whose answer is not ONNX Runtime's is "
    "left out. `of limit`: the least time, of the multiply-adds at the FMA peak measured between the cases or of "
    "moving each operand once at the bandwidth of the smallest level that holds the model, over ours; Winograd is "
    "counted by the plain definition and may exceed 100 %, of rows the steps of polynomials are. Losses are printed "
    "like wins."
)
MAX_ERROR = 1e-3  # of the output's range: chains of eight Winograd convolutions stay far below
PROBES = 6  # the best of several: threads that start late make one look slow
SHORT = 2e-4  # seconds: below it two threads are not expected to be twice as fast


@dataclass(frozen=True, slots=True)
class Goal:
    """What a group of cases must reach against the best engine: in geometric mean, and each; share of the limit."""

    mean: float | None = None
    each: float | None = None
    limit: float | None = None
    against: tuple[str, ...] = PEERS


GOALS = {
    "GEMM": Goal(mean=1.03, limit=95.0),
    "skinny GEMM": Goal(limit=85.0),
    "Winograd, hot": Goal(each=2.8),
    "Winograd, cold": Goal(each=1.0),
    "convolution": Goal(mean=1.05, each=0.97),
    "depthwise": Goal(mean=1.7, each=1.3),
    "rows": Goal(each=1.3, against=("onnxruntime",)),
    "attention": Goal(each=1.5, against=("onnxruntime",)),
    "recurrent": Goal(each=1.3),
}


@dataclass(frozen=True, slots=True)
class Found:
    """Seconds of one operator per engine (None: refused), and the least possible."""

    case: Case
    threads: int
    seconds: dict[str, float]
    least: float

    @property
    def ours(self) -> float | None:
        """Our best: tuned where there are records."""
        times = [self.seconds[label] for label in ("untuned", "tuned") if label in self.seconds]
        return min(times, default=None)

    def against(self, names: Sequence[str]) -> float | None:
        """How much faster we are than the best of these engines."""
        peers = [self.seconds[name] for name in names if name in self.seconds]
        return speedup(self.ours, min(peers)) if peers and self.ours else None


def measure(
    case: Case, threads: int, database: Path | None, budget: str | None, peaks: Peaks, rounds: int
) -> tuple[Found, list[Row]]:
    """One case at one number of threads."""
    target = Target.parse(f"native -num-cores={threads}")
    ours: list[tuple[str, str, dict[str, object]]] = [("untuned", "autotune", {"database": False})]
    with tempfile.TemporaryDirectory(prefix="autotune-kernels-") as folder, ExitStack() as stack:
        path = Path(folder) / "case.onnx"
        model = case.build()
        onnx.save(model, path)
        if database is not None:
            if budget is not None:
                tune(path, threads, budget, database)
            ours.append(("tuned", "autotune", {"database": str(database.resolve())}))
        engines: list[Engine] = []
        notes: dict[str, str] = {}
        for label, kind, options in (*ours, *((kind, kind, {}) for kind in PEERS)):
            try:
                engine = stack.enter_context(Engine(kind, path, threads, label=label, options=options))
                engine.feed(feeds_of(model))
                engine.time(2)
                engines.append(engine)
            except EngineError as error:
                notes[label] = str(error)
        wrong = disagreeing(engines)
        notes.update({e.label: f"{e.label}: another answer than onnxruntime" for e in wrong})
        engines = [e for e in engines if e not in wrong]
        probe = FmaPeak(target)
        peak = [probe.run() for _ in range(PROBES)]
        samples = time_in_turn(engines, rounds, runs_per_turn(engines[0], 0.03)) if engines else []
        peak += [probe.run() for _ in range(PROBES)]
    seconds = {e.label: latency(found) / case.count for e, found in zip(engines, samples)}
    noise = {e.label: spread(found) for e, found in zip(engines, samples)}
    found = Found(case, threads, seconds, least(case, target, max(peak), peaks))
    row: Row = {
        "case": case.name,
        **{f"{label} µs": one * 1e6 for label, one in seconds.items()},
        "best peer / ours": found.against(PEERS),
        "GFLOP/s": case.flops / found.ours * 1e-9 if found.ours and case.flops else None,
        "of limit %": 100 * found.least / found.ours if found.ours else None,
        "spread %": 100 * max(noise.values(), default=0.0),
        "note": "; ".join(notes.values()) or None,
    }
    return found, [row]


def disagreeing(engines: Sequence[Engine]) -> list[Engine]:
    """The engines whose output is far from ONNX Runtime's."""
    outputs = {engine.label: engine.run()[0].astype(np.float64).reshape(-1) for engine in engines}
    right = outputs.get("onnxruntime")
    if right is None:
        return []
    return [
        engine
        for engine in engines
        if (one := outputs[engine.label]).size != right.size
        or not np.abs(one - right).max() <= MAX_ERROR * max(np.ptp(right), 1e-9)
    ]


def feeds_of(model: onnx.ModelProto) -> dict[str, NDArray[np.float32]]:
    """Varied values for every input."""
    rng = np.random.default_rng(1)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def least(case: Case, target: Target, peak: float, peaks: Peaks) -> float:
    """Seconds that the machine needs at least for one operator."""
    size = case.nbytes * case.count
    levels = ((target.l2_bytes * target.num_threads, peaks.l2), (target.l3_bytes, peaks.l3))
    rate = next((rate for held, rate in levels if size <= held), peaks.dram)
    return max(case.flops / peak, case.nbytes / rate.all_cores) * 1e-9


def claims(report: Report, found: Sequence[Found]) -> None:
    """What each group reached, at each number of threads, and what the second thread brought."""
    for threads in sorted({one.threads for one in found}):
        for group, goal in GOALS.items():
            here = [one for one in found if one.threads == threads and one.case.group == group]
            ratios = [r for one in here if (r := one.against(goal.against)) is not None]
            where, engines = f"{group}, {threads} threads", " or ".join(goal.against)
            if ratios and goal.mean is not None:
                mean = statistics.geometric_mean(ratios)
                report.claim(f"{where}: times as fast as {engines}, geometric mean", mean, "at least", goal.mean, "x")
            if ratios and goal.each is not None:
                report.claim(f"{where}: times as fast as {engines}, the least", min(ratios), "at least", goal.each, "x")
            shares = [100 * one.least / one.ours for one in here if one.ours]
            if shares and goal.limit is not None:
                report.claim(f"{where}: share of the limit, the least", min(shares), "at least", goal.limit, " %")
    one_thread = {one.case.name: one.ours for one in found if one.threads == 1 and one.ours}
    gains = [
        one_thread[two.case.name] / two.ours
        for two in found
        if two.threads == 2 and two.ours and one_thread.get(two.case.name, 0.0) >= SHORT
    ]
    if gains:
        report.claim("two threads over one, median", statistics.median(gains), "at least", 1.9, "x")
        report.claim("two threads over one, the least", min(gains), "at least", 1.75, "x")
    tuned = [one.seconds for one in found if {"untuned", "tuned"} <= one.seconds.keys()]
    if tuned:
        worst = max(times["untuned"] / times["tuned"] for times in tuned)
        report.claim("untuned over tuned, the most", worst, "at most", 1.3, "x")


def plot(found: Sequence[Found], path: Path) -> None:
    """Bars of every engine's share of the limit; the axis ends at what the machine can do."""
    import matplotlib.pyplot as plt

    threads = sorted({one.threads for one in found})
    labels = list(dict.fromkeys(label for one in found for label in one.seconds))
    height = 0.22 * len(found) / len(threads) * len(labels) ** 0.5 + 1
    figure, panels = plt.subplots(1, len(threads), figsize=(7 * len(threads), height), squeeze=False, sharey=True)
    for panel, count in zip(panels[0], threads):
        here = [one for one in found if one.threads == count]
        for n, label in enumerate(labels):
            shares = [min(1.0, one.least / one.seconds[label]) * 100 if label in one.seconds else 0 for one in here]
            panel.barh(
                [y + n / (len(labels) + 1) for y in range(len(here))], shares, 1 / (len(labels) + 1), label=label
            )
        panel.set_yticks(range(len(here)), [f"{one.case.group}: {one.case.name}" for one in here], fontsize=7)
        panel.set_xlim(0, 100)
        panel.set_xlabel(f"% of the machine's limit, {count} threads")
        panel.invert_yaxis()
    panels[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> int:
    options = parser("kernels", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--group", choices=tuple(GOALS), action="append", help="default: all")
    options.add_argument("--threads", type=int, action="append", help="default: 1 and 2")
    options.add_argument("--db", type=Path, help="a tuning database; tuned kernels are measured beside untuned ones")
    options.add_argument("--tune", metavar="BUDGET", help="tune each case first, into --db")
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--plot", type=Path, metavar="FILE", help="draw the shares of the limit (.svg, .png, .pdf)")
    given = options.parse_args(arguments)
    if given.tune and given.db is None:
        options.error("--tune needs --db")
    counts = [n for n in given.threads or (1, 2) if n <= machine.allowed_cores()]
    chosen = [case for case in cases() if given.group is None or case.group in given.group]
    if given.quick:
        chosen, counts = chosen[-1:], counts[:1]
    report = Report("kernels", METHOD, given.quick)
    found: list[Found] = []
    for threads in counts:
        peaks = measure_peaks(Target.parse(f"native -num-cores={threads}"))
        for group in dict.fromkeys(case.group for case in chosen):
            rows: list[Row] = []
            for case in (case for case in chosen if case.group == group):
                progress(f"{threads} threads: {group} {case.name}")
                one, lines = measure(case, threads, given.db, given.tune, peaks, 3 if given.quick else given.rounds)
                found.append(one)
                rows += lines
            report.table(f"{group}, {threads} threads", rows)
    claims(report, found)
    if given.plot is not None:
        plot(found, given.plot)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
