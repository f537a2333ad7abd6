"""Measures nests of many tasks for the cost model to learn from, and keeps them: benchmarks/learned/*.jsonl.xz.

python -m benchmarks.lessons --out FILE                                   every task, one thread
python -m benchmarks.lessons --out FILE --target "x86 -mcpu=haswell -num-cores=1" --task product
python -m benchmarks.lessons --out FILE --op "matmul a=64,64 b=64,64"     another one
python -m benchmarks.lessons --out FILE --again pack. --again depth       what has copies or partial sums once more
python -m benchmarks.lessons --out FILE --in-turn 12                      each round of a task's candidates in turn
python -m benchmarks.lessons --out FILE --cold 200                        with weights from memory, as a model has them
python -m benchmarks.lessons --out FILE --in-turn 1 --moments 20 --tiles  matrix registers, calm moments and busy ones

Each round measures, of every task, what the model in use likes best (again, where that was slow), steps from what was
best, what the closed form alone likes, and chance; the file grows by a round at a time. Where the code of a knob's
values became faster, --again times what is known of them once more. All of a round is built first and timed in one go:
with --lock FILE, only while no other program holds the lock of that file. Where others' programs make a machine faster
and slower unseen by its gauges, --in-turn times all candidates of a task in turn, so that each meets every moment; of
what was known before the best are among them, and say how the days compare. With --moments N that is done N times,
and what calm moments and busy ones give counts: where a neighbour uses the same core, matrix registers take up to four
times as long, and not all code alike.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune import machine
from autotune.cores import core_of
from autotune.measure.builder import Builder
from autotune.measure.failure import Failure
from autotune.measure.local_runner import STAND_ALONE, RunOptions
from autotune.measure.pipeline import Pipeline
from autotune.measure.runner import Runner
from autotune.measure.spill_filter import SpillFilter
from autotune.measure.timing import TimingPolicy
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.ops import parse_workload
from autotune.schedule.dot_products import on_tiles
from autotune.search.lesson_file import Measured, load, save
from autotune.search_spaces.sketch.space import SketchSpace
from autotune.search_spaces.space.config import TEMPLATE, Config
from autotune.search_spaces.space.registry import lookup, task_space
from autotune.search_spaces.space.space import ConfigSpace, TaskSpace
from autotune.target import Target
from benchmarks.lesson_tasks import TASKS, UNSEEN
from benchmarks.prebuilt import Prebuilt, Turn, add_cold, add_turns, turn_of
from benchmarks.report import progress

POLICY = TimingPolicy(rounds=5, most_rounds=8, round_seconds=1e-3, max_seconds=0.25, abort_ratio=2.0, loser_ratio=1.15,
                      loser_rounds=2, retries=0)  # fmt: skip
"""Few repeats: what is a tenth slower than the best need not be known more closely."""
DOUBTED = 1.15
"""How many times slower than the best what the model likes may be before it is timed again: one of the two errs."""
ELITE = 6
AGAIN = 2
"""How often what was disturbed is timed again."""


@dataclass(frozen=True, slots=True)
class Moments:
    """How often candidates of a task are timed in turn, and in how many rounds each time; in none: one by one."""

    rounds: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Mixture:
    """How many configs of a task a round measures: that the model likes, that the closed form alone does, a step from
    the best, at random."""

    liked: int = 6
    counted: int = 0
    steps: int = 8
    chance: int = 10


def candidates(space: TaskSpace, known: Mapping[Config, float], mix: Mixture, rng: random.Random) -> list[Config]:
    """What to measure next.

    Args:
        known: seconds of configs measured so far; without any, the first guesses come first.
    """
    sketches = {name: m.space for name, m in space.members.items() if isinstance(m.space, SketchSpace)}
    found = [] if known else space.defaults()
    slow = DOUBTED * min(known.values(), default=0.0)
    for name, sketch in sketches.items():
        liked = [config.replace(**{TEMPLATE: name}) for config in sketch.foreseen(2 * mix.liked)]
        found += [config for config in liked if known.get(config, math.inf) > slow][: mix.liked]
        counted = sketch.foreseen(2 * mix.counted, sketch.cycles) if mix.counted else []
        found += [c for c in (one.replace(**{TEMPLATE: name}) for one in counted) if c not in known][: mix.counted]
    best = sorted((c for c, s in known.items() if math.isfinite(s)), key=lambda c: known[c])[:ELITE]
    best = best or found[:ELITE] or space.defaults()
    others = [space.mutate(rng.choice(best), rng) for _ in range(mix.steps)]
    for name, _ in zip(itertools.cycle(sketches or [""]), range(mix.chance)):
        others.append(sketches[name].sample(rng).replace(**{TEMPLATE: name}) if name else space.sample(rng))
    return list(dict.fromkeys([*found, *(config for config in others if config not in known)]))


def using(space: ConfigSpace, config: Config, knobs: Sequence[str]) -> bool:
    """Whether a knob whose name begins so does something, which it does not at its first value."""
    return any(config.get(k.name) != k.values[0] for k in space.knobs if k.name.startswith(tuple(knobs)))


def once_more(space: TaskSpace, known: Mapping[Config, float], knobs: Sequence[str]) -> list[Config]:
    """Of the configs measured so far, those that use such knobs, and of the others the best, which tell the two days
    apart."""
    order = sorted((c for c, s in known.items() if math.isfinite(s)), key=lambda c: known[c])
    spaces = {name: member.space for name, member in space.members.items()}
    stale = [c for c in order if c.template in spaces and using(spaces[str(c.template)], c, knobs)]
    return [*stale, *[c for c in order if c not in stale][:ELITE]] if stale else []


def as_before(one: Measured, known: Sequence[Measured], knobs: Sequence[str]) -> Measured:
    """The times of what uses such knobs, as they would have been when the others were measured: a machine that others
    use, too, is not as fast on every day."""
    template = lookup(one.template)
    space = template.space(parse_workload(one.workload), one.target)
    same = [k for k in known if (k.workload, k.target, k.template) == (one.workload, one.target, one.template)]
    before = {c: s for k in same for c, s in k.seconds.items()}
    fresh = {c: s for c, s in one.seconds.items() if using(space, c, knobs)}
    drift = [s / before[c] for c, s in one.seconds.items() if c not in fresh and math.isfinite(s)]
    return replace(one, seconds={c: s / statistics.median(drift or [1.0]) for c, s in fresh.items()})


def of_moments(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """(configs,) what counts of (moments, configs): the geometric mean of what calm moments give, twice, and what busy
    ones do."""
    calm = np.sort(seconds, axis=0)[min(1, len(seconds) - 1)]
    return np.asarray((calm**2 * np.quantile(seconds, 0.75, axis=0, method="higher")) ** (1 / 3))


def in_turn(
    line: str,
    target: Target,
    built: Mapping[MeasureInput, BuildResult | Failure],
    before: Mapping[Config, float],
    runner: Runner,
    moments: Moments,
    options: RunOptions,
) -> dict[Config, float]:
    """Seconds of all configs of a task, timed in turn; as they would have been when those known before were timed."""
    good = [(candidate, build) for candidate, build in built.items() if isinstance(build, BuildResult)]
    times = {candidate.config: math.inf for candidate in built}
    passes = [
        [r.seconds if isinstance(r, MeasureResult) else math.inf for r in results]
        for _ in range(moments.count if good else 0)
        for results in [runner.compare(good[0][0], [build for _, build in good], moments.rounds, options)]
    ]
    times |= {c.config: s for (c, _), s in zip(good, of_moments(np.array(passes)).tolist() if good else ())}
    drift = [s / before[c] for c, s in times.items() if math.isfinite(s) and math.isfinite(before.get(c, math.inf))]
    scale = statistics.median(drift or [1.0])
    fastest = min(times.values(), default=math.inf)
    progress(f"{line}: {len(times)} in turn, {len(times) - len(good)} not built, {fastest * 1e6:.1f} µs")
    return {c: s / scale for c, s in times.items()}


def without(one: Measured, found: Sequence[Measured]) -> dict[Config, float]:
    """The times that were not taken anew: the lower of two times of what is measured twice would flatter it."""
    key = (one.workload, one.target, one.template)
    anew = {c for x in found if (x.workload, x.target, x.template) == key for c in x.seconds}
    return {c: s for c, s in one.seconds.items() if c not in anew}


def here(target: Target) -> Target:
    """A target whose code is for another CPU than this, with the core of this one, which runs it: a nest's numbers are
    in units of the machine that was measured."""
    cpu = machine.this_machine().cpu
    return target if target.cpu == cpu else replace(target, core=core_of(cpu, target.features))


Choose = Callable[[TaskSpace, Mapping[Config, float], random.Random], list[Config]]
"""From the configs measured so far, with their seconds, to those to measure next."""


def measured_round(
    tasks: Sequence[str],
    target: Target,
    known: Sequence[Measured],
    choose: Choose,
    seed: str,
    turn: Turn,
    runner: Runner,
    moments: Moments = Moments(),
    options: RunOptions = STAND_ALONE,
) -> list[Measured]:
    """What one round adds.

    Args:
        known: of earlier rounds, on any target.
        turn: see `Turn`; a round is one turn, or a task where candidates are timed in turn.
        moments: in which candidates of a task are timed in turn.
        options: where weights are.
    """
    built: dict[str, dict[MeasureInput, BuildResult | Failure]] = {}
    before: dict[str, dict[Config, float]] = {}
    with Builder(machine.allowed_cores(), timeout=60.0) as builder:
        futures: dict[str, dict[MeasureInput, Future[BuildResult | Failure]]] = {}
        for line in tasks:
            workload = parse_workload(line)
            own = [one for one in known if (one.workload, one.target) == (line, target)]
            before[line] = {c.replace(**{TEMPLATE: one.template}): s for one in own for c, s in one.seconds.items()}
            chosen = choose(task_space(workload, target), before[line], random.Random(f"{seed}/{line}"))
            inputs = [MeasureInput(workload, config, None, target) for config in chosen]
            futures[line] = {candidate: builder.submit(candidate) for candidate in inputs}
        for line, each in futures.items():
            built[line] = {candidate: future.result() for candidate, future in each.items()}
    if moments.rounds:
        found = list[Measured]()
        for line in tasks:
            with turn():
                times = in_turn(line, target, built[line], before[line], runner, moments, options)
            found += _by_template(line, target, times)
        return found
    with turn():
        return [one for line in tasks for one in _measured(line, target, built[line], before[line], runner, options)]


def _by_template(line: str, target: Target, times: Mapping[Config, float]) -> list[Measured]:
    names = dict.fromkeys(config.template or "" for config in times)
    parts = {name: {c.without(TEMPLATE): s for c, s in times.items() if c.template == name} for name in names}
    return [Measured(line, target, name, part) for name, part in parts.items()]


def _measured(
    line: str,
    target: Target,
    built: Mapping[MeasureInput, BuildResult | Failure],
    before: Mapping[Config, float],
    runner: Runner,
    options: RunOptions,
) -> list[Measured]:
    """Of one task, by template."""
    pipeline = Pipeline(
        Prebuilt(built),
        runner,
        ahead=1,
        take_turns=False,
        spill_filter=SpillFilter(),
        weight_bytes=options.weight_bytes,
    )
    best = min(before.values(), default=math.inf)
    if built and math.isfinite(best):
        pipeline.incumbent(best, next(iter(built)))
    todo, times = list(built), dict[Config, float]()
    for _ in range(1 + AGAIN):
        found = list(pipeline.measure(todo))
        for m in found:
            seconds = math.inf if isinstance(m.result, Failure) else m.result.seconds
            times[m.candidate.config] = min(seconds, times.get(m.candidate.config, math.inf))
        todo = [m.candidate for m in found if isinstance(m.result, MeasureResult) and m.result.disturbed]
    failed = sum(not math.isfinite(s) for s in times.values())
    fastest = min(times.values(), default=math.inf)
    progress(
        f"{line}: {len(times)}, {failed} failed, {len(todo)} disturbed, {fastest * 1e6:.1f} µs, before {best * 1e6:.1f}"
    )
    return _by_template(line, target, times)


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.lessons",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--out", type=Path, required=True, metavar="FILE", help="what is there stays and is built on")
    for name, count in asdict(Mixture()).items():
        options.add_argument(f"--{name}", type=int, default=count, metavar="N", help=f"of a task [default: {count}]")
    options.add_argument("--rounds", type=int, default=2, metavar="N", help="[default: 2]")
    options.add_argument("--target", default="native -num-cores=1", help="[default: native -num-cores=1]")
    options.add_argument("--task", action="append", choices=TASKS, help="only of this kind; may be repeated")
    options.add_argument("--unseen", action="store_true", help="the tasks that a model is judged by")
    options.add_argument("--op", action="append", help="an operator as `autotune tune --op` takes it; may be repeated")
    options.add_argument("--again", action="append", metavar="KNOB", help="time again what uses it; may be repeated")
    options.add_argument(
        "--in-turn", type=int, default=0, metavar="N", help="time the candidates of a task in turn, in N rounds"
    )
    options.add_argument("--moments", type=int, default=1, metavar="N", help="... N times [default: 1]")
    options.add_argument("--tiles", action="store_true", help="only configs of matrix registers")
    add_cold(options)
    add_turns(options)
    given = options.parse_args(arguments)
    if given.moments < 1 or (given.moments > 1 and not given.in_turn):
        options.error("--moments counts the times that candidates are timed --in-turn: give both, each at least 1")
    moments = Moments(given.in_turn, given.moments)
    weights = RunOptions(weight_bytes=given.cold << 20)
    target = here(Target.parse(given.target))
    kinds = given.task or ([] if given.op else TASKS)
    tasks = [line for kind in kinds for line in (UNSEEN if given.unseen else TASKS).get(kind, ())] + (given.op or [])
    mix = Mixture(given.liked, given.counted, given.steps, given.chance)

    def choose(space: TaskSpace, known: Mapping[Config, float], rng: random.Random) -> list[Config]:
        if given.again:
            return once_more(space, known, given.again)
        best = sorted((c for c, s in known.items() if math.isfinite(s)), key=lambda c: known[c])[:ELITE]
        found = dict.fromkeys([*candidates(space, known, mix, rng), *(best if given.in_turn else ())])
        return [config for config in found if not given.tiles or on_tiles(str(config.get("dot")))]

    known = [one for each in (load(given.out) if given.out.exists() else []) if (one := each.today()).seconds]
    with Runner(target, POLICY) as runner:
        turn = turn_of(given, runner)
        for number in range(given.rounds):
            seed = f"{target}/{sum(len(one.seconds) for one in known)}"
            progress(f"round {number + 1} of {given.rounds}, {target}")
            found = measured_round(tasks, target, known, choose, seed, turn, runner, moments, weights)
            if given.again:
                found = [as_before(one, known, given.again) for one in found]
                known = [replace(one, seconds=without(one, found)) for one in known]
            save(given.out, [*known, *found])
            known = load(given.out)
    print(f"{given.out}: {sum(len(one.seconds) for one in known)} configs, {given.out.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
