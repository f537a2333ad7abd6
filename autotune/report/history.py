"""What tuning brought over time: the best schedule after each trial, and what the records of two databases say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.ops.workload import Workload
from autotune.records import Database


@dataclass(frozen=True, slots=True)
class History:
    """The trials of one workload on one target.

    Attributes:
        description: for people.
        steps: (number of the trial, seconds) at each new best, the first trial being number 1.
        trials, failed: how many there are.
        disturbed: whether all that worked were measured beside other programs.
    """

    description: str
    steps: tuple[tuple[int, float], ...]
    trials: int
    failed: int
    disturbed: bool = False

    @property
    def first(self) -> float | None:
        """Seconds of the first schedule that worked."""
        return self.steps[0][1] if self.steps else None

    @property
    def best(self) -> float | None:
        return self.steps[-1][1] if self.steps else None


def history(database: Database, workload: Workload, target_key: str) -> History:
    """All trials of a workload, in any layouts, in the order in which they were stored.

    Disturbed ones make no best, unless there are no others.
    """
    trials = list(enumerate(database.trials(workload.key, target_key), 1))
    worked = [(n, t.seconds, t.disturbed) for n, t in trials if t.verified and t.seconds is not None]
    disturbed = bool(worked) and all(shaken for _, _, shaken in worked)
    steps: list[tuple[int, float]] = []
    for number, seconds, shaken in worked:
        if (disturbed or not shaken) and (not steps or seconds < steps[-1][1]):
            steps.append((number, seconds))
    failed = sum(trial.seconds is None for _, trial in trials)
    return History(workload.describe(), tuple(steps), len(trials), failed, disturbed)


@dataclass(frozen=True, slots=True)
class Difference:
    """The best known times of one workload in two databases; None where one of them has none."""

    description: str
    here: float | None
    there: float | None


def differences(
    here: Database | None, there: Database | None, workloads: Sequence[Workload], target_key: str
) -> list[Difference]:
    """What two databases know of the same workloads, those that either knows."""
    found = []
    for workload in dict.fromkeys(workloads):
        one, other = (None if db is None else _best(db, workload, target_key) for db in (here, there))
        if one is not None or other is not None:
            found.append(Difference(workload.describe(), one, other))
    return found


def _best(database: Database, workload: Workload, target_key: str) -> float | None:
    records = database.top(workload.key, target_key, 1)
    return records[0].seconds if records else None
