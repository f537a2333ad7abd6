"""Seeds: configs that were good nearby, tried before a search knows anything. They save trials and decide nothing."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.errors import WorkloadError
from autotune.ops.family import distance, family_key
from autotune.ops.workload import Workload
from autotune.records import Database, Tier, TuningRecord
from autotune.search.task import TuningTask
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import TaskSpace

SEEDS = 3
RELATIVES = 12
"""How many of the nearest workloads are looked at for as many seeds as are wanted."""


def seeds(database: Database, task: TuningTask) -> list[Config]:
    """Configs of the task's space: of the same workload in other layouts or on another target, then of its relatives.

    Relatives differ in batch, size or what is fused behind; the nearest in size come first, each with its best
    config. Values that a knob does not have here give way to the closest ones.
    """
    found: dict[Config, None] = {}
    if not isinstance(task.space, TaskSpace):
        return []
    for record in (*_own(database, task), *_of_relatives(database, task)):
        config = task.space.nearest(Config.from_json(record.config))
        if config is not None:
            found[config] = None
        if len(found) == SEEDS:
            break
    return list(found)


def complete_families(database: Database) -> None:
    """Lets records of an older autotune, or of another's file, be found as relatives."""
    database.complete_families(_family)


def _own(database: Database, task: TuningTask) -> list[TuningRecord]:
    match = database.best(task.workload.key, task.target.key, task.target.to_json())
    return [match.record] if match.record is not None and match.tier is not Tier.FOREIGN else []


def _of_relatives(database: Database, task: TuningTask) -> Iterator[TuningRecord]:
    members = database.family(family_key(task.workload), task.target.key)
    apart = {
        key: distance(task.workload, Workload.from_json(text))
        for key, text in members.items()
        if key != task.workload.key
    }
    for key in sorted(apart, key=lambda key: (apart[key], key))[:RELATIVES]:
        yield from database.top(key, task.target.key, 1)


def _family(workload: str) -> str | None:
    """The family of a workload in JSON; None for one with an operator that nobody has registered here."""
    try:
        return family_key(Workload.from_json(workload))
    except WorkloadError:
        return None
