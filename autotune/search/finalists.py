"""Finalists: the best configs of a task against its default, timed in turn. What wins is what gets installed.

Trials are timed at different moments, some beside other programs, so the fastest of hundreds owes part of its lead to
luck. Timed in turn with the default, under the same clock and the same neighbours, it keeps only what it deserves; and
when it does not beat the default, the default is the best record and is what a compiler will find.

What the rounds of one task have in common is the default: between two of them the host may have become slower or
faster, so that a time counts by what the default took beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autotune.measure.failure import Failure
from autotune.measure.types import BuildResult, MeasureResult
from autotune.records import CLEARLY
from autotune.search.measuring import Measuring
from autotune.search.task import TaskSearch
from autotune.search.trial import Trial
from autotune.search_spaces.space.config import Config

ENOUGH_ROUNDS = 2
LATER = 8

Retimed = tuple[Trial, BuildResult, MeasureResult | Failure]


@dataclass(frozen=True, slots=True)
class Settled:
    """`retimed`: the last word on each finalist; `problem`: why there is none, in one line."""

    retimed: tuple[Retimed, ...] = ()
    problem: str = ""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Fastest first."""
        return tuple(sorted((trial for trial, _, _ in self.retimed), key=lambda trial: trial.cost))


def settle(search: TaskSearch, count: int, pipeline: Measuring) -> Settled | None:
    """Times the `count` best configs in turn with the default; the trials of the search take the new times.

    When a config that was left out is ahead then, those ahead run too, until the best is one of those compared: also
    those that were disturbed when first timed, which may be faster than they seemed. After two rounds it is also enough
    that a finalist clearly beat the default, or that none of the others is clearly ahead of those compared: of dozens
    within the noise, any will do, and a compiler takes none that was not compared and is not far ahead.
    None when there is nothing to settle: the default is the best, and was not disturbed, nor was what seems faster; or
    nothing works.
    """
    settled: dict[Config, Retimed] = {}
    rounds = 0
    while _is_open(search, settled):
        if rounds >= ENOUGH_ROUNDS and (_clearly_won(search.default, settled) or not _one_far_ahead(search, settled)):
            break
        rounds += 1
        ranked = sorted((t for t in search.trials.values() if t.seconds is not None), key=lambda trial: trial.cost)
        before = [t for t in ranked if t.config in settled and t.config != search.default][:1]
        fresh = [t for t in ranked if t.config not in settled and t.config != search.default]
        if before:
            ahead = [t for t in fresh if t.cost < before[0].cost][:LATER]
            fresh = ahead or [t for t in fresh if search.best is not None and t.config == search.best.config]
        else:
            fresh = fresh[:count]
        # The best so far runs again, so that every comparison is within one round.
        found = _time_in_turn(search, [search.default, *(t.config for t in (*before, *fresh))], pipeline)
        if isinstance(found, str):
            return Settled(tuple(settled.values()), found)
        for entry in _beside_the_calmest(search.default, list(settled.values()), found):
            settled[entry[0].config] = entry
            search.replace(entry[0])
    return Settled(tuple(settled.values())) if settled else None


def _is_open(search: TaskSearch, settled: dict[Config, Retimed]) -> bool:
    """Whether the best was not compared yet: another than the default; or the default, which was disturbed, or is
    slower than what was."""
    best = search.best
    if best is None or best.config in settled:
        return False
    if best.config != search.default:
        return True
    others = [trial for trial in search.trials.values() if trial.seconds is not None and trial.config != search.default]
    return any(best.disturbed or trial.cost < best.cost for trial in others)


def _one_far_ahead(search: TaskSearch, settled: dict[Config, Retimed]) -> bool:
    """Whether a trial that was not compared seems clearly faster than all that were."""
    best, compared = search.best, min(trial.cost for trial, *_ in settled.values())
    return best is not None and best.config not in settled and best.cost < CLEARLY * compared


def _clearly_won(default: Config, settled: dict[Config, Retimed]) -> bool:
    costs = {config: trial.cost for config, (trial, _, _) in settled.items()}
    return min(costs.values()) < CLEARLY * costs[default]


def _beside_the_calmest(default: Config, before: list[Retimed], now: list[Retimed]) -> list[Retimed]:
    """The entries of two rounds as if both had been as calm as the one in which the default was faster; what both have
    counts as it is now."""
    taken = [next((trial.cost for trial, *_ in found if trial.config == default), math.inf) for found in (before, now)]
    calmest = min(taken)
    return [
        _at_pace(entry, cost / calmest) for found, cost in zip((before, now), taken, strict=True) for entry in found
    ]


def _at_pace(entry: Retimed, slower: float) -> Retimed:
    """What came of a kernel in a round in which everything took so many times as long."""
    trial, build, result = entry
    if trial.seconds is None or isinstance(result, Failure):
        return entry
    seconds = trial.seconds / slower
    return replace(trial, seconds=seconds), build, replace(result, seconds=seconds)


def _time_in_turn(search: TaskSearch, configs: list[Config], pipeline: Measuring) -> list[Retimed] | str:
    """One round; the first config is the default. A text says why it could not be done."""
    builds = pipeline.build([search.candidate(config) for config in configs])
    by_code: dict[str, BuildResult] = {}
    for config, build in zip(configs, builds, strict=True):
        if isinstance(build, Failure):
            return f"{config.to_json()} does not build again: {build.kind}: {build.message}"
        by_code.setdefault(build.kernel.ir_hash, build)
    results = pipeline.compare(search.candidate(search.default), list(by_code.values()))
    outcomes = dict(zip(by_code, results, strict=True))
    retimed: list[Retimed] = []
    for config, build in zip(configs, builds, strict=True):
        assert isinstance(build, BuildResult)
        result = outcomes[build.kernel.ir_hash]
        if isinstance(result, Failure):
            if config == search.default:
                return f"the default does not run again: {result.kind}: {result.message}"
            retimed.append((Trial(config, failure=result.kind), build, result))
        else:
            trial = Trial(config, seconds=result.seconds, disturbed=result.disturbed, compared=True)
            retimed.append((trial, build, result))
    return retimed
