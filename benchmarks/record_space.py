"""Measures real tasks' spaces into files that benchmarks.search and benchmarks.cost_model replay.

python -m benchmarks.record_space --out DIR --points 600 --minutes 15       all tasks, unattended
python -m benchmarks.record_space --out DIR --task softmax --task "3x3 14"  some of them
python -m benchmarks.record_space --out DIR --op "matmul a=64,64 b=64,64"   others

Tasks grow in turns, a round of points each, until all have --points or the time is spent. The same command continues.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from autotune import machine
from autotune.errors import MeasureError
from autotune.measure.builder import Builder
from autotune.measure.failure import Failure
from autotune.measure.pipeline import Measurement, Pipeline
from autotune.measure.runner import Runner
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.ops import parse_workload
from autotune.search.space_recording import RecordedPoint, SpaceRecording
from autotune.search.strategies.random_search import RandomSearch
from autotune.search.task import TuningTask
from autotune.search.trial import Trial
from autotune.search_spaces.space.space import Space, TaskSpace
from autotune.target import Target
from benchmarks.prebuilt import Prebuilt, Turn, add_turns, turn_of
from benchmarks.report import environment, progress

TASKS = {
    "softmax": "softmax data=1024,1000",
    "layer norm": "layer_norm data=1024,768 scale=768 bias=768",
    "attention": "attention q=1,12,128,64 k=1,12,128,64 v=1,12,128,64 q_heads=12 kv_heads=12",
    "reduce chain": "mul a=1024,768 b=1024,768 + reduce_sum axes=1 + sqrt",
    "transpose": "transpose data=1,768,197 perm=0,2,1",
    "max pool": "max_pool data=1,64,112,112 kernel=3,3 stride=2,2 pad=1,1,1,1",
    "1x1 14": "conv2d data=1,1024,14,14 weight=256,1024,1,1",
    "1x1 14 of bytes": "conv2d data=1,256,14,14:u8 weight=1024,256,1,1:i8",
    "3x3 28 stride 2": "conv2d data=1,128,28,28 weight=256,128,3,3 pad=1 stride=2",
    "3x3 224 stride 2": "conv2d data=1,3,224,224 weight=32,3,3,3 pad=1 stride=2",
    "depthwise 5x5": "conv2d data=1,480,14,14 weight=480,1,5,5 pad=2 groups=480",
    "grouped": "conv2d data=1,128,28,28 weight=128,4,3,3 pad=1 groups=32",
    "product": "matmul a=var:128,768 b=const:768,768",
    "product of bytes": "matmul a=var:128,768:u8 b=const:768,768:i8",
    "product bf16": "matmul a=var:128,768:bf16 b=const:768,768:bf16",
    "product of a vector": "matmul a=var:1,2048 b=const:2048,1000",
    "products": "matmul a=var:12,128,64 b=var:12,64,128",
    "scores as einsum": "einsum data=1,197,12,64 data=1,197,12,64 equation=bqhd,bkhd->bhqk",
    "contraction": "einsum data=24,24,24,48 data=48,24,48 equation=abcd,dbe->ace",
}
ROUND = 100
AGAIN = 2
"""How often what was disturbed is timed again."""
SETTLED = 12
"""The best are timed again, so many in turn."""
COMPARED = 5
"""How often; the middle counts."""
STANDARDS = 3
"""How many are timed each time, too."""


def recorded(folder: Path) -> list[Path]:
    """The files of a folder that this has written. Raises SystemExit where there are none."""
    found = sorted(folder.glob("*.jsonl.gz"))
    if not found:
        raise SystemExit(f"{folder} holds no recorded space; python -m benchmarks.record_space --out makes some")
    return found


def empty(name: str, line: str, task: TuningTask) -> SpaceRecording:
    """A recording without points."""
    space = task.space
    weights = {key: member.weight for key, member in space.members.items()} if isinstance(space, TaskSpace) else {}
    defaults = tuple(config.key for config in space.defaults())
    return SpaceRecording(
        name, line, str(task.target), space.feature_names, defaults, weights, about=environment()
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """Points of one task on their way: what is built while the round before it is timed."""

    name: str
    candidates: Sequence[MeasureInput]
    building: Sequence[Future[BuildResult | Failure]]
    last: bool
    """Nothing of the space is left."""


class Drawing:
    """A random sample of a task's space, round by round; the defaults come first."""

    def __init__(self, recording: SpaceRecording, task: TuningTask) -> None:
        self._name, self._task = recording.name, task
        # Another seed, so that a run that continues does not draw what is there.
        self._strategy = RandomSearch(task.space, random.Random(f"{recording.name}/{len(recording.points)}"))
        for point in recording.points.values():
            self._strategy.observe(point.trial)
        self.drawn = len(recording.points)
        self.complete = recording.complete

    def round(self, count: int, builder: Builder) -> Round:
        """The next points, given to the builder."""
        configs = self._strategy.propose(count)
        self.drawn += len(configs)
        self.complete = len(configs) < count
        candidates = [self._task.candidate(config) for config in configs]
        return Round(self._name, candidates, [builder.submit(candidate) for candidate in candidates], self.complete)


def timed(recording: SpaceRecording, drawn: Round, space: Space, runner: Runner, turn: Turn) -> SpaceRecording:
    """The recording with the points of a round; what was disturbed is timed again."""
    built = dict(zip(drawn.candidates, (future.result() for future in drawn.building)))
    pipeline = Pipeline(Prebuilt(built), runner, ahead=1, take_turns=False)
    best = min((point.trial.cost for point in recording.points.values()), default=math.inf)
    if built and math.isfinite(best):
        pipeline.incumbent(best, drawn.candidates[0])
    found: dict[str, RecordedPoint] = {}
    todo = list(drawn.candidates)
    with turn():
        for _ in range(1 + AGAIN):
            measured = list(pipeline.measure(todo))
            for measurement in measured:
                point = _point(measurement, space)
                known = found.setdefault(point.config.key, point)
                if point.trial.cost < known.trial.cost:
                    found[point.config.key] = point
            todo = [m.candidate for m in measured if isinstance(m.result, MeasureResult) and m.result.disturbed]
    return recording.with_points(*found.values(), complete=drawn.last, settled=False)


def settle(recording: SpaceRecording, task: TuningTask, builder: Builder, runner: Runner, turn: Turn) -> SpaceRecording:
    """With times of the best that are fair to each other, whatever they seemed to take alone: some of thousands seemed
    faster than they can be. The best are compared in turn until each of them has been compared `COMPARED` times.
    `STANDARDS` kernels are in all comparisons: they say how slow a moment is, not those that seemed fast in another."""
    asked = Counter[str]()
    standards: dict[str, float] = {}
    times: dict[str, list[float]] = {}
    """As if all moments were the first comparison's, by hash."""
    while True:
        ran = [point for point in recording.points.values() if point.trial.seconds is not None]
        kernels = {point.ir_hash: point for point in sorted(ran, key=lambda p: -p.trial.cost)}
        best = sorted(kernels, key=lambda code: kernels[code].trial.cost)[:SETTLED]
        if len(best) < 2 or all(asked[code] >= COMPARED for code in best):
            return recording.with_points(settled=True)
        asked.update(best)
        again = _compared([kernels[code] for code in dict.fromkeys([*best, *standards])], task, builder, runner, turn)
        standards = standards or {code: again[code] for code in sorted(again, key=lambda c: again[c])[:STANDARDS]}
        paces = [again[code] / seconds for code, seconds in standards.items() if code in again]
        for code, seconds in again.items() if paces else ():
            times.setdefault(code, []).append(seconds / statistics.median(paces))
        # What does not run again keeps its time.
        moved = [_taking(p, statistics.median(times[p.ir_hash])) for p in ran if p.ir_hash in times]
        recording = recording.with_points(*moved)


def _compared(
    points: Sequence[RecordedPoint], task: TuningTask, builder: Builder, runner: Runner, turn: Turn
) -> dict[str, float]:
    """Seconds in turn, by hash, of those that run."""
    candidates = [task.candidate(point.config) for point in points]
    built = [future.result() for future in [builder.submit(candidate) for candidate in candidates]]
    good = [build for build in built if isinstance(build, BuildResult)]
    with turn():
        results = runner.compare(candidates[0], good)
    return {
        build.kernel.ir_hash[:16]: result.seconds
        for build, result in zip(good, results, strict=True)
        if not isinstance(result, Failure)
    }


def _taking(point: RecordedPoint, seconds: float) -> RecordedPoint:
    trial = Trial(point.config, seconds)
    return RecordedPoint(trial, point.features, point.spills, point.fmas, point.ir_hash, point.steps)


def _point(measurement: Measurement, space: Space) -> RecordedPoint:
    config, build, result = measurement.candidate.config, measurement.build, measurement.result
    failed = isinstance(result, Failure)
    trial = Trial(config, failure=result.kind) if isinstance(result, Failure) else Trial(config, result.seconds)
    features = space.encode(config)
    if build is None:
        return RecordedPoint(trial, features)
    kernel = build.kernel
    steps = "" if failed else build.steps
    return RecordedPoint(trial, features, kernel.spills, kernel.fmas, kernel.ir_hash[:16], steps)


def load_or_begin(path: Path, name: str, line: str, task: TuningTask) -> SpaceRecording:
    """What an earlier run recorded, when it is of the same space; else nothing yet."""
    begun = empty(name, line, task)
    if not path.exists():
        return begun
    found = SpaceRecording.load(path)
    if (found.workload, found.target, found.feature_names) != (line, begun.target, begun.feature_names):
        raise MeasureError(f"{path} holds another space than {line!r} has now on {begun.target}; move it away")
    return found


def record(
    tasks: Sequence[tuple[str, str]],
    target: Target,
    out: Path,
    points: int,
    seconds: float,
    given: argparse.Namespace,
) -> int:
    """Records until every task has its points or the time is spent; how many points there are.

    Args:
        given: the options of `add_turns`.
    """
    end = time.monotonic() + seconds
    made = {name: TuningTask.of(parse_workload(line), target) for name, line in tasks}
    paths = {name: out / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.jsonl.gz" for name in made}
    found = {name: load_or_begin(paths[name], name, line, made[name]) for name, line in tasks}
    drawings = {name: Drawing(found[name], made[name]) for name in made}

    def rounds(builder: Builder) -> Iterator[Round]:
        while time.monotonic() < end:
            open_ = [one for one in drawings.values() if not one.complete and one.drawn < points]
            if not open_:
                return
            for drawing in open_:
                if time.monotonic() < end:
                    yield drawing.round(min(ROUND, points - drawing.drawn), builder)

    with Runner(target) as runner, Builder(machine.allowed_cores(), timeout=60.0) as builder:
        quiet = turn_of(given, runner)
        coming = rounds(builder)
        following = next(coming, None)
        while (drawn := following) is not None:
            following = next(coming, None)  # it is built meanwhile
            name = drawn.name
            found[name] = timed(found[name], drawn, made[name].space, runner, quiet)
            found[name].save(paths[name])
            progress(f"{name}: {len(found[name].points)} points{', all' if found[name].complete else ''}")
        for name in made:
            if not found[name].settled:
                found[name] = settle(found[name], made[name], builder, runner, quiet)
                found[name].save(paths[name])
    return sum(len(recording.points) for recording in found.values())


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.record_space",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--out", type=Path, required=True, metavar="DIR", help="one file per task; made if need be")
    options.add_argument("--points", type=int, default=600, metavar="N", help="of each task [default: 600]")
    options.add_argument("--minutes", type=float, default=15.0, help="for all tasks together [default: 15]")
    options.add_argument("--target", default="native -num-cores=1", help="[default: native -num-cores=1]")
    options.add_argument("--task", action="append", choices=TASKS, help="only this one; may be repeated")
    options.add_argument("--op", action="append", help="an operator as `autotune tune --op` takes it; may be repeated")
    add_turns(options)
    given = options.parse_args(arguments)
    names = given.task or ([] if given.op else TASKS)
    tasks = [(name, TASKS[name]) for name in names] + [(line, line) for line in given.op or ()]
    given.out.mkdir(parents=True, exist_ok=True)
    total = record(tasks, Target.parse(given.target), given.out, given.points, 60 * given.minutes, given)
    size = sum(path.stat().st_size for path in given.out.glob("*.jsonl.gz"))
    print(f"{total} points of {len(tasks)} tasks in {given.out}, {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
