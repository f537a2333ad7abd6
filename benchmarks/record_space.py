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
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from autotune import machine
from autotune.errors import MeasureError
from autotune.measure.builder import Builder
from autotune.measure.failure import Failure
from autotune.measure.pipeline import Measurement, Pipeline
from autotune.measure.runner import Runner
from autotune.measure.types import BuildResult
from autotune.ops import parse_workload
from autotune.search.space_recording import RecordedPoint, SpaceRecording
from autotune.search.strategies.random_search import RandomSearch
from autotune.search.task import TuningTask
from autotune.search.trial import Trial
from autotune.search_spaces.space.space import Space, TaskSpace
from autotune.target import Target
from benchmarks.lessons import POLICY
from benchmarks.prebuilt import Prebuilt, Turn, add_lock, turn_of
from benchmarks.report import environment, progress

TASKS = {
    "softmax": "softmax data=1024,1000",
    "layer norm": "layer_norm data=1024,768 scale=768 bias=768",
    "reduce chain": "mul a=1024,768 b=1024,768 + reduce_sum axes=1 + sqrt",
    "transpose": "transpose data=1024,1024 perm=1,0",
    "1x1 14": "conv2d data=1,1024,14,14 weight=256,1024,1,1",
    "3x3 14": "conv2d data=1,256,14,14 weight=256,256,3,3 pad=1",
    "3x3 56 stride 2": "conv2d data=1,128,56,56 weight=128,128,3,3 pad=1 stride=2",
    "7x7 224 stride 2": "conv2d data=1,3,224,224 weight=64,3,7,7 pad=3 stride=2",
    "depthwise 5x5": "conv2d data=1,480,14,14 weight=480,1,5,5 pad=2 groups=480",
    "grouped": "conv2d data=1,128,28,28 weight=128,4,3,3 pad=1 groups=32",
    "3-D": "conv3d data=1,32,8,28,28 weight=64,32,3,3,3 pad=1",
    "attention": "attention q=1,12,128,64 k=1,12,128,64 v=1,12,128,64 q_heads=12 kv_heads=12",
    "product": "matmul a=128,768 b=768,3072",
    "products": "matmul a=12,197,64 b=12,64,197",
    "product of a vector": "matmul a=1,4096 b=4096,4096",
    "product as einsum": "einsum data=512,512 data=512,512 equation=ij,jk->ik",
    "scores as einsum": "einsum data=1,197,12,64 data=1,197,12,64 equation=bqhd,bkhd->bhqk",
    "contraction": "einsum data=24,24,24,48 data=48,24,48 equation=abcd,dbe->ace",
}
ROUND = 100
SETTLED = 12
"""The best are timed again, in turn: noise only ever adds time, so each keeps the lower one of its two times."""


def empty(name: str, line: str, task: TuningTask) -> SpaceRecording:
    """A recording without points."""
    space = task.space
    weights = {key: member.weight for key, member in space.members.items()} if isinstance(space, TaskSpace) else {}
    defaults = tuple(config.key for config in space.defaults())
    return SpaceRecording(
        name, line, str(task.target), space.feature_names, defaults, weights, about=environment()
    )  # fmt: skip


def extend(
    recording: SpaceRecording, task: TuningTask, builder: Builder, runner: Runner, turn: Turn, count: int
) -> SpaceRecording:
    """Up to `count` points more: the defaults, then a random sample; `complete` when nothing is left."""
    # Another seed in each round, so that a run that continues does not draw what is there.
    strategy = RandomSearch(task.space, random.Random(f"{recording.name}/{len(recording.points)}"))
    for point in recording.points.values():
        strategy.observe(point.trial)
    configs = strategy.propose(count)
    candidates = [task.candidate(config) for config in configs]
    futures = [builder.submit(candidate) for candidate in candidates]
    built = dict(zip(candidates, (future.result() for future in futures)))
    pipeline = Pipeline(Prebuilt(built), runner, ahead=1, take_turns=False)
    best = min((point.trial.cost for point in recording.points.values()), default=math.inf)
    if candidates and math.isfinite(best):
        pipeline.incumbent(best, candidates[0])
    with turn():
        points = [_point(measurement, task.space) for measurement in pipeline.measure(candidates)]
    return recording.with_points(*points, complete=len(configs) < count, settled=False)


def settle(recording: SpaceRecording, task: TuningTask, builder: Builder, runner: Runner, turn: Turn) -> SpaceRecording:
    """The best points with times that are fair to each other."""
    ranked = sorted((p for p in recording.points.values() if p.trial.seconds is not None), key=lambda p: p.trial.cost)
    best = list({point.ir_hash: point for point in ranked}.values())[:SETTLED]
    if len(best) < 2:
        return recording.with_points(settled=True)
    candidates = [task.candidate(point.config) for point in best]
    futures = [builder.submit(candidate) for candidate in candidates]
    builds = [build for build in (future.result() for future in futures) if isinstance(build, BuildResult)]
    with turn():
        results = runner.compare(candidates[0], builds)
    again = {
        build.kernel.ir_hash[:16]: result.seconds
        for build, result in zip(builds, results, strict=True)
        if not isinstance(result, Failure)
    }
    points = [_faster(point, again[point.ir_hash]) for point in ranked if point.ir_hash in again]
    return recording.with_points(*points, settled=True)


def _faster(point: RecordedPoint, seconds: float) -> RecordedPoint:
    trial = Trial(point.config, min(point.trial.cost, seconds))
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


def record(tasks: Sequence[tuple[str, str]], target: Target, out: Path, points: int, seconds: float, turn: Turn) -> int:
    """Records until every task has its points or the time is spent; how many points there are."""
    end = time.monotonic() + seconds
    made = {name: TuningTask.of(parse_workload(line), target) for name, line in tasks}
    paths = {name: out / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.jsonl.gz" for name in made}
    found = {name: load_or_begin(paths[name], name, line, made[name]) for name, line in tasks}
    with Runner(target, POLICY) as runner, Builder(machine.allowed_cores(), timeout=60.0) as builder:
        while time.monotonic() < end:
            open_ = [name for name in made if not found[name].complete and len(found[name].points) < points]
            if not open_:
                break
            for name in open_:
                if time.monotonic() >= end:
                    break
                count = min(ROUND, points - len(found[name].points))
                found[name] = extend(found[name], made[name], builder, runner, turn, count)
                found[name].save(paths[name])
                progress(f"{name}: {len(found[name].points)} points{', all' if found[name].complete else ''}")
        for name in made:
            if not found[name].settled:
                found[name] = settle(found[name], made[name], builder, runner, turn)
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
    add_lock(options)
    given = options.parse_args(arguments)
    names = given.task or ([] if given.op else TASKS)
    tasks = [(name, TASKS[name]) for name in names] + [(line, line) for line in given.op or ()]
    given.out.mkdir(parents=True, exist_ok=True)
    total = record(tasks, Target.parse(given.target), given.out, given.points, 60 * given.minutes,
                   turn_of(given.lock))  # fmt: skip
    size = sum(path.stat().st_size for path in given.out.glob("*.jsonl.gz"))
    print(f"{total} points of {len(tasks)} tasks in {given.out}, {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
