"""From tuning records to lessons: what was measured of nests, in numbers that mean the same for every task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

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
    except (WorkloadError, TargetError) as error:
        _log.info("no lesson from the trials of %s: %s", first.description, error)
        return None
    seconds = {
        Config.from_json(record.config).without(TEMPLATE): np.inf if record.seconds is None else record.seconds
        for record in records
    }
    return lesson_of(first.description, workload, target, first.template, seconds)


def lesson_of(
    name: str, workload: Workload, target: Target, template: str, seconds: Mapping[Config, float]
) -> Lesson | None:
    """What measured configs of one template teach; those that its space has no more are left out.

    Args:
        name: of the task, for people.
        seconds: by config, without the template's name; infinity where it failed.

    Returns:
        None where nothing is left, or the features mean something for this task alone.
    """
    space = _space(name, workload, target, template)
    if space is None or not space.portable:
        return None
    times = of_space(space, seconds)
    if not times:
        return None
    valid = list(times)
    features = Features(space.feature_names, space.encode_all(valid))
    anchor = workload.anchor
    operator = anchor.op if anchor is not None else workload.nodes[0].op
    return Lesson(name, operator, target.key, features, np.array([times[config] for config in valid]))


def times_today(
    name: str, workload: Workload, target: Target, template: str, seconds: Mapping[Config, float]
) -> dict[Config, float]:
    """What was measured of one template's configs, by the configs that its space has today; see `lesson_of`."""
    space = _space(name, workload, target, template)
    return {} if space is None else of_space(space, seconds)


def of_space(space: ConfigSpace, seconds: Mapping[Config, float]) -> dict[Config, float]:
    """The times of the configs that a space has. A knob that it got later does nothing by default, as before there was
    one; where a config is known with and without it, the later entry counts."""
    usual = {knob.name: knob.default for knob in space.knobs}
    times = {Config.of({**usual, **dict(config.entries)}): time for config, time in seconds.items()}
    return {config: time for config, time in times.items() if _valid(space, config)}


def _space(name: str, workload: Workload, target: Target, template: str) -> ConfigSpace | None:
    """The space of a template; None where there is no such template, or none for this workload."""
    try:
        known = lookup(template)
        return known.space(workload, target) if known.applies(workload, target) else None
    except (ConfigError, WorkloadError) as error:
        _log.info("no lesson from the trials of %s: %s", name, error)
        return None


def _valid(space: ConfigSpace, config: Config) -> bool:
    try:
        space.validate(config)
    except ConfigError:
        return False
    return True
