"""TuneOutcome: what a tuning run came to, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.cost_model.metrics import pairwise_accuracy
from autotune.records import CLEARLY
from autotune.search.task import TaskSearch, TuningTask
from autotune.search.trial import SKIPPED, Trial, best_trial

MOVED = 1.05
"""Two times of one kernel that are further apart than this are in doubt; quiet ones agree within 3 % or are marked."""
MOST_COMPARED = 2000
"""Trials of a task whose order is looked at: pairs grow as their square."""


@dataclass(frozen=True, slots=True)
class Foresight:
    """What a cost model expected against what was measured. Most of these trials were chosen because it liked them,
    which are the hardest to order.

    Attributes:
        trials: how many it was asked about, and worked.
        error: median of |log(measured / expected)|, near the relative error where it is small.
        order: share of pairs of trials in the right order; a half is chance.
    """

    trials: int
    error: float
    order: float

    @staticmethod
    def of(trials: Iterable[Trial]) -> Foresight | None:
        """None when no two trials tell."""
        known = [(t.predicted, t.cost) for t in trials if t.predicted is not None and t.seconds is not None]
        if not known:
            return None
        expected, seconds = np.array(known[:MOST_COMPARED]).T
        order = pairwise_accuracy(-expected, seconds)
        error = float(np.median(np.abs(np.log(seconds / expected))))
        return None if np.isnan(order) else Foresight(len(known), error, order)

    @staticmethod
    def together(parts: Iterable[Foresight | None]) -> Foresight | None:
        """Of several tasks, weighed by their trials."""
        found = [part for part in parts if part is not None]
        if not found:
            return None
        weights = [part.trials for part in found]
        error = np.average([part.error for part in found], weights=weights)
        order = np.average([part.order for part in found], weights=weights)
        return Foresight(sum(weights), float(error), float(order))


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """
    Attributes:
        trials: finished, those of earlier runs included; `new` in this run; `failed` of all, and `skipped`: built and
            not run, because registers spill.
        default_seconds: of the default, timed in turn with the best where there was time.
        default_alone: its seconds in a trial of its own, where it was timed in turn, too: how far the two are apart
            says how much `speedup` can be trusted.
        default_disturbed: others ran beside it; None where it was not timed.
        best: the fastest verified config; the default itself when nothing beats it; None when nothing works.
        foresight: how well the cost model knew the trials when it chose them; None before it was asked.
        stopped: why the task ended before the budget did; None otherwise.
    """

    task: TuningTask
    trials: int
    new: int
    failed: int
    skipped: int
    default_seconds: float | None
    default_alone: float | None
    default_disturbed: bool | None
    best: Trial | None
    gflops: float | None
    foresight: Foresight | None
    stopped: str | None

    @staticmethod
    def of(search: TaskSearch, new: int) -> TaskOutcome:
        default, best = search.default_trial, best_trial(search.trials.values())
        compared = best_trial(trial for trial in search.trials.values() if trial.compared)
        if best is not None and compared is not None and best.cost > CLEARLY * compared.cost:
            best = compared  # a compiler takes no other that is not far ahead of what was timed in turn
        if best is not None and default is not None and default.seconds is not None and default.cost < best.cost:
            best = default  # others ran beside it, and yet nothing that was measured in quiet beats it
        return TaskOutcome(
            task=search.task,
            trials=len(search.trials),
            new=new,
            failed=sum(trial.failure not in (None, SKIPPED) for trial in search.trials.values()),
            skipped=sum(trial.failure == SKIPPED for trial in search.trials.values()),
            default_seconds=default.seconds if default is not None else None,
            default_alone=search.default_alone,
            default_disturbed=default.disturbed if default is not None else None,
            best=best,
            gflops=search.flops / best.cost / 1e9 if best is not None else None,
            foresight=Foresight.of(search.trials.values()),
            stopped=search.stopped,
        )

    @property
    def speedup(self) -> float | None:
        """Default time / best time; 1 when the default is the best."""
        if self.best is None or self.default_seconds is None:
            return None
        return self.default_seconds / self.best.cost

    @property
    def speedup_alone(self) -> float | None:
        """The same by the default's own trial, where another was timed in turn with the best."""
        return self.default_alone / self.best.cost if self.best is not None and self.default_alone else None

    @property
    def of_limit(self) -> float | None:
        """The time that no kernel can beat / the best one's; None where either is not known."""
        return self.task.ideal_seconds / self.best.cost if self.best is not None and self.task.ideal_seconds else None

    @property
    def moved(self) -> bool:
        """Whether the default took so much longer, or shorter, in turn than alone that nobody knows what was gained."""
        if self.default_seconds is None or self.default_alone is None:
            return False
        apart = self.default_seconds / self.default_alone
        return max(apart, 1 / apart) > MOVED


@dataclass(frozen=True, slots=True)
class TuneOutcome:
    """
    Attributes:
        seconds: of the whole run.
        time: seconds by part, see `TimeShares`.
        interrupted: ended by Ctrl-C; the same call continues.
        session_id: of the run's row in the database.
    """

    tasks: tuple[TaskOutcome, ...]
    seconds: float
    time: Mapping[str, float]
    interrupted: bool
    session_id: str

    @property
    def new_trials(self) -> int:
        return sum(task.new for task in self.tasks)

    @property
    def trials_per_second(self) -> float:
        return self.new_trials / self.seconds if self.seconds > 0 else 0.0

    @property
    def foresight(self) -> Foresight | None:
        """Of the cost models, over all tasks."""
        return Foresight.together(task.foresight for task in self.tasks)

    def shares(self) -> dict[str, float]:
        """Each part's seconds relative to the run's; build and run pass during the others."""
        return {part: seconds / self.seconds if self.seconds > 0 else 0.0 for part, seconds in self.time.items()}
