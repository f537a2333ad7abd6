"""From tuning records to lessons: what was measured of nests, in numbers that mean the same for every task."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np

from autotune.cost_model.features import Features
from autotune.cost_model.training import Lesson
from autotune.errors import ConfigError, TargetError, WorkloadError
from autotune.ops.workload import Workload
from autotune.records import Database, TuningRecord
from autotune.search_spaces.space.config import TEMPLATE, Config
from autotune.search_spaces.space.registry import lookup
from autotune.search_spaces.space.space import ConfigSpace
from autotune.target import Target

_log = logging.getLogger(__name__)


def lessons(database: Database) -> list[Lesson]:
    """One lesson per task and template of the trials whose templates have portable features.

    Trials of templates, workloads or targets that this version does not know are passed over.
    """
    return lessons_of(database.trials())


def lessons_of(trials: Iterable[TuningRecord]) -> list[Lesson]:
    """The same of some trials."""
    tasks: dict[tuple[str, ...], list[TuningRecord]] = {}
    for record in trials:
        if record.seconds is None or record.verified:
            key = (record.workload_key, record.target_key, record.interface_key, record.residency, record.template)
            tasks.setdefault(key, []).append(record)
    found = (_lesson(records) for records in tasks.values())
    return [lesson for lesson in found if lesson is not None]


def _lesson(records: list[TuningRecord]) -> Lesson | None:
    first = records[0]
    try:
        workload, target = Workload.from_json(first.workload), Target.from_json(first.target)
        template = lookup(first.template)
        space = template.space(workload, target) if template.applies(workload, target) else None
    except (ConfigError, WorkloadError, TargetError) as error:
        _log.info("no lesson from the trials of %s: %s", first.description, error)
        return None
    if space is None or not space.portable:
        return None
    valid = list(_valid(space, records))
    if not valid:
        return None
    values = space.encode_all([config for config, _ in valid])
    seconds = np.array([np.inf if record.seconds is None else record.seconds for _, record in valid])
    anchor = workload.anchor
    operator = anchor.op if anchor is not None else workload.nodes[0].op
    return Lesson(first.description, operator, first.target_key, Features(space.feature_names, values), seconds)


def _valid(space: ConfigSpace, records: Iterable[TuningRecord]) -> Iterable[tuple[Config, TuningRecord]]:
    for record in records:
        config = Config.from_json(record.config).without(TEMPLATE)
        try:
            space.validate(config)
        except ConfigError:
            continue
        yield config, record
