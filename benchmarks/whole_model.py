"""What tuning a whole model reaches in how much time, simulated: the tuning loop itself on recorded spaces.

python -m benchmarks.whole_model benchmarks/spaces                         60 and 600 s, 20 models
python -m benchmarks.whole_model benchmarks/spaces --seconds 30 --seeds 5
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from autotune import machine
from autotune.codegen.kernel import KernelObject
from autotune.measure.failure import Failure
from autotune.measure.pipeline import Measurement
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.ops import parse_workload
from autotune.records import CLEARLY, Database
from autotune.search.budget import Budget
from autotune.search.learning import of_space
from autotune.search.outcome import TaskOutcome, TuneOutcome
from autotune.search.recorded_space import RecordedSpace
from autotune.search.simulation import Simulation
from autotune.search.space_recording import RecordedPoint, SpaceRecording
from autotune.search.task import TuningTask
from autotune.search.trial import Trial
from autotune.search.tuner import TuneOptions, tune
from autotune.search_spaces.space.config import TEMPLATE, Config
from autotune.search_spaces.space.limit import limit
from autotune.search_spaces.space.registry import task_space
from autotune.search_spaces.space.space import TaskSpace
from autotune.target import Target
from benchmarks.record_space import recorded
from benchmarks.report import Report, Row, parser, progress

METHOD = (
    "The tuning loop with its usual options on a simulated clock and recorded spaces, whose tasks make up a model: a "
    "seed draws what share of its time each takes (log-normal), and errs in what trials find by 1 %, one in twenty by "
    "8 %; comparisons err by 0.3 %. A trial costs a build and a turn in the runner, thinking costs each config that is "
    "looked at, all on two cores. What the cost model sees is encoded anew, so the shipped prior counts, but for "
    "configs that today's spaces lack, which are left out. Seconds are those of the search, finalists included. Gain: "
    "time of the model untuned / tuned, by what was recorded, of the kernels that a compiler would choose. Of what "
    "there is: log of the gain over that of the fastest recorded configs."
)
CORES = 2
BUILD, TURN, LOOK, COMPARISON = 0.065, 0.030, 0.4e-3, 0.04
"""CPU seconds of a build, a trial in the runner, a config that is thought about, and a kernel among finalists."""
USUAL, FREAK, OFTEN, COMPARED = 0.01, 0.08, 0.05, 0.003
"""Errors, as standard deviations of logarithms: of trials, of freaks and how often they are, of comparisons."""
AHEAD = 10
"""Candidates under way, as a pipeline on so many cores has."""
SOON, WITHIN = 60, 1.02


class Clock:
    """Seconds that the simulation has come to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float, cores: int = CORES) -> None:
        self.now += seconds / cores


class ThoughtSpace(RecordedSpace):
    """A recorded space in which looking at a config takes time."""

    def __init__(self, recording: SpaceRecording, clock: Clock) -> None:
        super().__init__(recording)
        self._clock = clock

    def encode_all(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        self._clock.spend(LOOK * len(configs))
        return super().encode_all(configs)


@dataclass
class Machine:
    """Stands in for a `Pipeline`: answers with what was recorded, and errs as measuring does."""

    truth: Mapping[str, Simulation]
    clock: Clock
    rng: random.Random
    _built: dict[str, MeasureInput] = field(default_factory=dict)

    def measure(self, candidates: Iterable[MeasureInput]) -> Iterator[Measurement]:
        source, queue = iter(candidates), list[MeasureInput]()
        while True:
            queue += islice(source, AHEAD - len(queue))
            if not queue:
                return
            candidate = queue.pop(0)
            trial = self._true(candidate)
            cost = BUILD + (TURN if trial.seconds is not None else 0.0)
            self.clock.spend(cost)
            error = FREAK if self.rng.random() < OFTEN else USUAL
            yield Measurement(candidate, self._build(candidate), self._result(trial, error), cost)

    def build(self, candidates: Sequence[MeasureInput]) -> list[BuildResult | Failure]:
        return [self._build(candidate) for candidate in candidates]

    def compare(
        self, candidate: MeasureInput, builds: Sequence[BuildResult], rounds: int = 20
    ) -> list[MeasureResult | Failure]:
        self.clock.spend(COMPARISON * len(builds), 1)
        return [self._result(self._true(self._built[build.kernel.ir_hash]), COMPARED) for build in builds]

    def incumbent(self, seconds: float, candidate: MeasureInput) -> None:
        pass

    def _true(self, candidate: MeasureInput) -> Trial:
        return self.truth[candidate.workload.key].run(candidate.config)

    def _build(self, candidate: MeasureInput) -> BuildResult:
        code = candidate.workload.key + candidate.config.key
        self._built[code] = candidate
        return BuildResult(KernelObject("kernel", b"", code, (), 0, 0, 0, 0), "[]", "direct", BUILD)

    def _result(self, trial: Trial, error: float) -> MeasureResult | Failure:
        if trial.seconds is None:
            return Failure("runtime", f"as recorded: {trial.failure}")
        seconds = trial.seconds * math.exp(self.rng.gauss(0.0, error))
        return MeasureResult(seconds, 0.0, 8, 10, 0.0, 0.0, 0.0, 1e-5, wall_seconds=TURN)


def today(recording: SpaceRecording) -> SpaceRecording | None:
    """The recording in the words of today's space, with what the cost model sees of its configs; None where the space
    lacks the default."""
    space = task_space(parse_workload(recording.workload), Target.parse(recording.target))
    kept = {key: found for key, point in recording.points.items() if (found := _today(space, point)) is not None}
    if recording.defaults[0] not in kept:
        return None
    rows = space.encode_all([point.config for point in kept.values()])
    return replace(
        recording,
        feature_names=space.feature_names,
        defaults=tuple(kept[key].config.key for key in recording.defaults if key in kept),
        points={p.config.key: replace(p, features=row) for p, row in zip(kept.values(), rows, strict=True)},
    )


def _today(space: TaskSpace, point: RecordedPoint) -> RecordedPoint | None:
    """With the knobs that the space got since; None where it has no such config."""
    name = point.config.template
    member = space.members.get(name) if name else None
    known = () if member is None else of_space(member.space, {point.config.without(TEMPLATE): 0.0})
    found = [replace(point, trial=replace(point.trial, config=config.replace(template=name))) for config in known]
    return found[0] if found else None


def simulated(recordings: Sequence[SpaceRecording], seconds: float, seed: int) -> Row:
    """One model, tuned for so long."""
    rng, clock = random.Random(f"model/{seed}"), Clock()
    tasks, truth = [], {}
    for recording in recordings:
        workload, target = parse_workload(recording.workload), Target.parse(recording.target)
        space = ThoughtSpace(recording, clock)
        truth[workload.key] = space.simulation
        share = math.exp(rng.gauss(0.0, 1.0))
        weight = share / truth[workload.key].run(space.default()).cost
        tasks.append(TuningTask(workload, target, space, weight, ideal_seconds=limit(workload, target).seconds))
    pipeline = Machine(truth, clock, random.Random(f"noise/{seed}"))
    with (
        tempfile.TemporaryDirectory(prefix="autotune-whole-model-") as folder,
        Database.open(Path(folder) / "model.sqlite") as database,
    ):
        outcome = tune(
            tasks, pipeline=pipeline, database=database, budget=Budget(seconds=seconds),
            options=TuneOptions(seed=seed), clock=clock, wall=lambda: 1.7e9 + clock(),
        )  # fmt: skip
    return judged(outcome, truth)


def judged(outcome: TuneOutcome, truth: Mapping[str, Simulation]) -> Row:
    untuned = tuned = best = 0.0
    for found in outcome.tasks:
        table, weight = truth[found.task.workload.key], found.task.weight
        default = table.run(found.task.space.default()).cost
        untuned += weight * default
        tuned += weight * table.run(chosen(found)).cost
        best += weight * min(default, table.best)
    return {
        "trials": outcome.new_trials,
        "gain": untuned / tuned,
        "best": untuned / best,
        "of what there is": math.log(untuned / tuned) / math.log(untuned / best) if untuned > best else 1.0,
    }


def chosen(found: TaskOutcome) -> Config:
    """What a compiler takes of a task."""
    default, best = found.task.space.default(), found.best
    if best is None or found.default_seconds is None:
        return default
    return best.config if best.compared or best.cost < CLEARLY * found.default_seconds else default


def main(arguments: list[str] | None = None) -> int:
    options = parser("whole_model", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.description = __doc__
    options.add_argument("spaces", type=Path, metavar="DIR", help="what benchmarks.record_space wrote")
    options.add_argument("--seconds", type=float, nargs="+", default=[60, 600], metavar="N", help="[default: 60 600]")
    options.add_argument("--seeds", type=int, default=20)
    given = options.parse_args(arguments)
    paths = recorded(given.spaces)
    budgets, seeds = ([5.0], 2) if given.quick else (sorted(set(given.seconds)), given.seeds)
    report = Report("whole_model", METHOD, given.quick)
    recordings = [found for path in paths if (found := today(SpaceRecording.load(path))) is not None]
    progress(f"{len(recordings)} of {len(paths)} tasks, {sum(len(r.points) for r in recordings)} configs")
    rows: dict[float, list[Row]] = {}
    with ProcessPoolExecutor(machine.allowed_cores(), get_context("spawn")) as pool:
        for seconds in budgets:
            jobs = [pool.submit(simulated, recordings, seconds, seed) for seed in range(seeds)]
            rows[seconds] = [job.result() for job in jobs]
    table = [_over(seconds, found) for seconds, found in rows.items()]
    report.table("models", table)
    longest = budgets[-1]
    for seconds in budgets[:-1]:
        if seconds >= SOON:
            pairs = zip(rows[seconds], rows[longest], strict=True)
            behind = median(float(late["gain"] or 1) / float(soon["gain"] or 1) for soon, late in pairs)
            report.claim(f"time after {seconds:g} s over that after {longest:g} s", behind, "at most", WITHIN)
    report.finish(given.json)
    return 0


def _over(seconds: float, rows: Sequence[Row]) -> Row:
    return {
        "seconds": seconds,
        "models": len(rows),
        **{name: fmean(float(row[name] or 0) for row in rows) for name in ("trials", "gain", "best")},
        "of what there is": fmean(float(row["of what there is"] or 0) for row in rows),
        "worst": min(float(row["of what there is"] or 0) for row in rows),
    }


if __name__ == "__main__":
    sys.exit(main())
