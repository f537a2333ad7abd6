"""Events: what a tuning run tells its caller while it runs. Plain values; whoever listens decides how to show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from autotune.search.task import TuningTask
from autotune.search.trial import Trial


@dataclass(frozen=True, slots=True)
class TaskResumed:
    """Trials of an earlier run were found in the database and count as done."""

    task: TuningTask
    trials: int
    incumbent_seconds: float | None


@dataclass(frozen=True, slots=True)
class RecordsOutdated:
    """Earlier trials do not count: the same config gives other code now.

    `kept_seconds`: of the best of them, whose stored steps still give its code; None where none's do.
    """

    task: TuningTask
    trials: int
    kept_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TrialFinished:
    """One more trial is in the database.

    Attributes:
        number: of the trial among all of the tuning, resumed ones included; `task_number` within the task.
        message: why it failed; empty when it did not.
        incumbent_seconds: the task's best so far; `gflops` is its speed in 1e9 operations per second.
        eta: seconds until the budget is spent; None when that cannot be told yet.
    """

    task: TuningTask
    trial: Trial
    message: str
    number: int
    task_number: int
    incumbent_seconds: float | None
    default_seconds: float | None
    gflops: float | None
    elapsed: float
    eta: float | None


@dataclass(frozen=True, slots=True)
class TaskStopped:
    """The task gets no more trials; `reason` is one line."""

    task: TuningTask
    reason: str


@dataclass(frozen=True, slots=True)
class FinalistsChosen:
    """The search has ended; the best configs of these tasks are timed again next, while there is time."""

    tasks: tuple[TuningTask, ...]


@dataclass(frozen=True, slots=True)
class FinalistsCompared:
    """The task's best configs were timed again, interleaved with the default.

    Attributes:
        trials: how they did, fastest first; empty when they could not be compared.
        problem: why not, in one line.
    """

    task: TuningTask
    trials: tuple[Trial, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FinalistsLeft:
    """The time was spent before the best configs of these tasks were timed again; the times of their trials stay."""

    tasks: tuple[TuningTask, ...]


Event: TypeAlias = (
    TaskResumed | RecordsOutdated | TrialFinished | TaskStopped | FinalistsChosen | FinalistsCompared | FinalistsLeft
)
Callback: TypeAlias = Callable[[Event], None]
