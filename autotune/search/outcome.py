"""TuneOutcome: what a tuning run came to, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.search.task import TaskSearch, TuningTask
from autotune.search.trial import Trial


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """
    Attributes:
        trials: finished, those of earlier runs included; `new` in this run; `failed` of all.
        best: the fastest verified config; the default itself when nothing beats it; None when nothing works.
        stopped: why the task ended before the budget did; None otherwise.
    """

    task: TuningTask
    trials: int
    new: int
    failed: int
    default_seconds: float | None
    best: Trial | None
    gflops: float | None
    stopped: str | None

    @staticmethod
    def of(search: TaskSearch, new: int) -> TaskOutcome:
        default = search.default_trial
        return TaskOutcome(
            task=search.task,
            trials=len(search.trials),
            new=new,
            failed=sum(trial.seconds is None for trial in search.trials.values()),
            default_seconds=default.seconds if default is not None else None,
            best=search.best,
            gflops=search.gflops,
            stopped=search.stopped,
        )

    @property
    def speedup(self) -> float | None:
        """Default time / best time; 1 when the default is the best."""
        if self.best is None or self.default_seconds is None:
            return None
        return self.default_seconds / self.best.cost


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

    def shares(self) -> dict[str, float]:
        """Each part's seconds relative to the run's; build and run pass during the others."""
        return {part: seconds / self.seconds if self.seconds > 0 else 0.0 for part, seconds in self.time.items()}
