"""Resume: which earlier trials of a task count, and what is kept of those that do not.

A trial counts as one of this run while its config is a point of the space and gives the code that was timed. Templates
change; then the fastest trial is kept alone, as its stored steps make it, while they give its code: it competes, but no
config leads to it any more, and nothing is learnt of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.measure.failure import Failure
from autotune.measure.types import BuildResult, MeasureInput
from autotune.records import Database, TuningRecord
from autotune.search.recording import earlier_trials, gives_the_same_code, replayable
from autotune.search.task import TaskSearch, TuningTask
from autotune.search.trial import Trial, best_trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.replay import Recorded

REPLAYED = 3
"""Of each task, how many of the fastest earlier trials are replayed at most, to keep one."""

Builds = Callable[[Sequence[MeasureInput]], list[BuildResult | Failure]]
Held = tuple[Trial, Recorded]


@dataclass(frozen=True, slots=True)
class History:
    """
    Attributes:
        trials: that count, in the order in which they were made.
        held: the fastest one of those that do not, when it is faster and its stored steps give its code.
        outdated: how many do not count because the best of them gives other code now.
    """

    trials: tuple[Trial, ...] = ()
    held: Held | None = None
    outdated: int = 0


def histories(searches: Sequence[TaskSearch], database: Database, build: Builds) -> dict[TaskSearch, History]:
    """What the database has of each search; `build` compiles what is doubtful, all at once."""
    found = {search: earlier_trials(database, search.task) for search in searches}
    best = {search: trial for search, trials in found.items() if (trial := best_trial(trials)) is not None}
    doubtful = {
        search: search.task.candidate(trial.config)
        for search, trial in best.items()
        if not gives_the_same_code(search.task, found[search][trial])
    }
    outdated = {
        search
        for search, built in _built(build, doubtful).items()
        if isinstance(built, Failure) or built.kernel.ir_hash != found[search][best[search]].ir_hash
    }
    faster = {
        search: [
            held
            for held in replayable(database, search.task, REPLAYED)
            if search in outdated
            or search not in best
            or (held[0].cost < best[search].cost and not _surely_counts(search.task, found[search], held[0].config))
        ]
        for search in searches
    }
    kept = _first_that_replays(build, faster)
    return {
        search: History((), kept.get(search), len(trials))
        if search in outdated
        else History(tuple(trials), kept.get(search))
        for search, trials in found.items()
    }


def _surely_counts(task: TuningTask, trials: Mapping[Trial, TuningRecord], config: Config) -> bool:
    """Whether a config is that of a trial, and surely gives its code: to replay its steps would add nothing."""
    return any(trial.config == config and gives_the_same_code(task, record) for trial, record in trials.items())


def _first_that_replays(build: Builds, wanted: Mapping[TaskSearch, Sequence[Held]]) -> dict[TaskSearch, Held]:
    found: dict[TaskSearch, Held] = {}
    for place in range(REPLAYED):
        asked = {search: held[place] for search, held in wanted.items() if len(held) > place and search not in found}
        candidates = {
            search: replace(search.task.candidate(trial.config), recorded=recorded)
            for search, (trial, recorded) in asked.items()
        }
        found |= {
            search: asked[search]
            for search, built in _built(build, candidates).items()
            if not isinstance(built, Failure)
        }
    return found


def _built(build: Builds, candidates: Mapping[TaskSearch, MeasureInput]) -> dict[TaskSearch, BuildResult | Failure]:
    return dict(zip(candidates, build(list(candidates.values())), strict=True)) if candidates else {}
