"""What two databases know of the same tasks."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.records.database import Database


@dataclass(frozen=True, slots=True)
class TaskDifference:
    """A workload on a target: its best verified seconds in two databases, None where one knows none."""

    workload_key: str
    target_key: str
    description: str
    here: float | None
    other: float | None

    @property
    def ratio(self) -> float | None:
        """The other's seconds over ours; None where one of them is missing."""
        return self.other / self.here if self.here is not None and self.other is not None else None


def compare(here: Database, other: Database) -> list[TaskDifference]:
    """All tasks that either knows: those that both know first, the largest differences first.

    Raises:
        DatabaseError: one of them cannot be read.
    """
    ours, theirs = ({(one.workload_key, one.target_key): one for one in db.workloads()} for db in (here, other))
    found = []
    for task in ours.keys() | theirs.keys():
        one, two = ours.get(task), theirs.get(task)
        description = (one or theirs[task]).description
        times = (None if known is None else known.best_seconds for known in (one, two))
        found.append(TaskDifference(*task, description, *times))
    return sorted(found, key=lambda one: (one.ratio is None, -_size(one.ratio), one.description, one.workload_key))


def _size(ratio: float | None) -> float:
    """How far from 1, in either direction."""
    return 1.0 if ratio is None else max(ratio, 1 / ratio)
