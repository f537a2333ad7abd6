"""The verdict on a model: whether its tuned program is used, from timing it in turn with the untuned one.

Where the interval of the rounds' ratios tells nothing, a tuned program that looks slower is not used; and the same two
programs are not judged twice (docs/adr/0012).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.api.observe import ObservedProgram
from autotune.codegen.object_cache import object_cache
from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.compiler.tasks import model_key
from autotune.engines.compare import ALLOWED_ERROR
from autotune.engines.race import RacerLike
from autotune.errors import ConfigError
from autotune.graph import partition
from autotune.measure.ratio import Ratio
from autotune.measure.timing import latency
from autotune.records import Database, Plan
from autotune.target import Target

MEASURED, AGAIN, TUNED, UNTUNED = "measured", "again", "tuned", "untuned"
WISHES = (MEASURED, AGAIN, TUNED, UNTUNED)
"""What may be asked of a verdict: as measured, measured again though nothing has changed, or one of the programs."""
MOST_LOOKS = 3
"""How often rounds are added while they cannot tell."""


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    """The whole model, tuned and untuned, timed in turn.

    Attributes:
        tuned_seconds, untuned_seconds: latency, medians of the rounds.
        speedup: of tuned over untuned, the median of the rounds' ratios, which need not be that of the two latencies.
        tuned: whether compilers will use the tuned schedules.
        error: largest difference between the answers of the two, relative to the output's range.
        interval: of the speed-up; None where so few rounds tell nothing.
        rounds: how many.
        repeated: nothing has changed since an earlier verdict, which stands.
        asked_for: somebody wanted it so, whatever was measured.
        disturbance: what other programs took while it was timed, in words; empty where the machine was quiet.
        weight: how often a run of the model runs the program, on average over its shapes.
    """

    tuned_seconds: float
    untuned_seconds: float
    speedup: float
    tuned: bool
    error: float
    interval: tuple[float, float] | None = None
    rounds: int = 0
    repeated: bool = False
    asked_for: bool = False
    disturbance: str = ""
    weight: float = 1.0

    @property
    def same(self) -> bool:
        """Whether there is nothing to choose: the tuned program is the untuned one."""
        return self.interval == (1.0, 1.0)

    @property
    def decided(self) -> bool:
        """Whether the rounds show that either is faster."""
        return self.interval is not None and not self.interval[0] <= 1 <= self.interval[1]


def combined(verdicts: Sequence[ModelVerdict]) -> ModelVerdict:
    """Of several programs that run one after another, each as often as its weight says."""
    tuned = sum(verdict.weight * verdict.tuned_seconds for verdict in verdicts)
    untuned = sum(verdict.weight * verdict.untuned_seconds for verdict in verdicts)

    def over_all(ratios: Sequence[float]) -> float:
        """Of the sums, when each program has such a ratio."""
        pairs = zip(verdicts, ratios, strict=True)
        return untuned / sum(verdict.weight * verdict.untuned_seconds / ratio for verdict, ratio in pairs)

    intervals = [verdict.interval for verdict in verdicts if verdict.interval is not None]
    known = len(intervals) == len(verdicts)
    return ModelVerdict(
        tuned,
        untuned,
        over_all([verdict.speedup for verdict in verdicts]),
        all(verdict.tuned for verdict in verdicts),
        max(verdict.error for verdict in verdicts),
        (over_all([low for low, _ in intervals]), over_all([high for _, high in intervals])) if known else None,
        min(verdict.rounds for verdict in verdicts),
        all(verdict.repeated for verdict in verdicts),
        any(verdict.asked_for for verdict in verdicts),
        next((verdict.disturbance for verdict in verdicts if verdict.disturbance), ""),
    )


def check_wish(wish: str) -> str:
    """
    Raises:
        ConfigError: no such wish.
    """
    if wish not in WISHES:
        raise ConfigError(f"unknown verdict {wish!r}; known: {', '.join(WISHES)}")
    return wish


def judge(
    observed: ObservedProgram,
    target: Target,
    database: Database,
    racer: RacerLike,
    *,
    rounds: Callable[[int, bool], int],
    session_id: str = "",
    strict_fp: bool = False,
    wish: str = MEASURED,
) -> ModelVerdict:
    """Which of a program's two forms is used from now on; stored as its plan.

    Args:
        racer: times programs in turn, on a machine that runs code for `target`.
        rounds: how often to time a program of so many operations, and how often more (True) where that did not tell.
        wish: one of `WISHES`.

    Raises:
        MeasureError: a program broke.
    """
    graph, cache, key = observed.graph, object_cache(), model_key(partition(observed.graph))
    tuned = compile_graph(graph, target, database, cache, heed_plan=False, strict_fp=strict_fp)
    untuned = compile_graph(graph, target, None, cache, strict_fp=strict_fp)
    programs = _identity(tuned, untuned)
    before = database.plan(key, target.key)
    if wish == MEASURED and before is not None and before.programs == programs:
        return _stored(before)
    contenders = {TUNED: tuned, UNTUNED: untuned} if tuned.key != untuned.key else {UNTUNED: untuned}
    timed = _time(contenders, observed, rounds, racer)
    verdict = timed.verdict(decide(timed.ratio, timed.error, before, wish), wish in (TUNED, UNTUNED))
    database.set_plan(_plan(verdict, key, target.key, programs, session_id))
    return verdict


def decide(ratio: Ratio, error: float, before: Plan | None, wish: str = MEASURED) -> bool:
    """Whether the tuned program is used. Wrong answers are never used; else a wish counts, then what the rounds show.

    Where they show nothing, the kernels have been compared one by one, and their gains are used if the rounds do not
    speak against them; a model that was found to be slower needs more than that.
    """
    if error > ALLOWED_ERROR:
        return False
    if wish in (TUNED, UNTUNED):
        return wish == TUNED
    if ratio.faster or ratio.slower:
        return ratio.faster
    return ratio.median >= 1 and (before is None or before.tuned)


@dataclass(frozen=True, slots=True)
class _Timed:
    tuned: float
    untuned: float
    ratio: Ratio
    error: float
    disturbance: str

    def verdict(self, tuned: bool, asked_for: bool) -> ModelVerdict:
        return ModelVerdict(
            self.tuned,
            self.untuned,
            self.ratio.median,
            tuned,
            self.error,
            self.ratio.interval,
            self.ratio.rounds,
            asked_for=asked_for,
            disturbance=self.disturbance,
        )


def _time(
    programs: Mapping[str, CompiledModel],
    observed: ObservedProgram,
    rounds: Callable[[int, bool], int],
    racer: RacerLike,
) -> _Timed:
    """The tuned program against the untuned one, more rounds while they cannot tell; or the only one there is."""
    samples: list[list[float]] = [[] for _ in programs]
    flops = programs[UNTUNED].program.flops
    error, disturbance = 0.0, ""
    for look in range(MOST_LOOKS):
        count = rounds(flops, look > 0)
        if not count:
            break
        found = racer.race(programs, observed.feeds, flops=flops, rounds=count, reference=UNTUNED)
        for kept, more in zip(samples, found.samples, strict=True):
            kept += more
        error, disturbance = max(error, found.error), disturbance or found.disturbance
        ratio = _ratio(samples)
        if ratio.faster or ratio.slower or len(programs) == 1 or error > ALLOWED_ERROR:
            break
    return _Timed(latency(samples[0]), latency(samples[-1]), _ratio(samples), error, disturbance)


def _ratio(samples: Sequence[Sequence[float]]) -> Ratio:
    """Equal programs take equal time, whatever the clock says."""
    return Ratio.of(samples[0], samples[1]) if len(samples) > 1 else Ratio(1.0, (1.0, 1.0), len(samples[0]))


def _identity(*models: CompiledModel) -> str:
    return hashlib.sha256(" ".join(model.key for model in models).encode()).hexdigest()[:16]


def _plan(verdict: ModelVerdict, key: str, target_key: str, programs: str, session_id: str) -> Plan:
    low, high = verdict.interval or (None, None)
    return Plan(
        model_key=key,
        target_key=target_key,
        tuned=verdict.tuned,
        tuned_seconds=verdict.tuned_seconds,
        untuned_seconds=verdict.untuned_seconds,
        speedup=verdict.speedup,
        low=low,
        high=high,
        rounds=verdict.rounds,
        error=verdict.error,
        programs=programs,
        asked_for=verdict.asked_for,
        disturbance=verdict.disturbance,
        session_id=session_id or None,
        created=time.time(),
    )


def _stored(plan: Plan) -> ModelVerdict:
    return ModelVerdict(
        plan.tuned_seconds,
        plan.untuned_seconds,
        plan.speedup or plan.untuned_seconds / plan.tuned_seconds,
        plan.tuned,
        plan.error or 0.0,
        None if plan.low is None or plan.high is None else (plan.low, plan.high),
        plan.rounds or 0,
        repeated=True,
        asked_for=plan.asked_for,
        disturbance=plan.disturbance,
    )
