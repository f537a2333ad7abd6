"""Transfer: a config of one space as the nearest point of another, of the same template at another size."""

from __future__ import annotations

from autotune.errors import ConfigError
from autotune.search_spaces.config import TEMPLATE, Config
from autotune.search_spaces.space import Space, TaskSpace


def nearest(space: Space, config: Config) -> Config | None:
    """The config itself where it is valid; else with the closest values that its knobs have here.

    None when the task has no such template, or when the closest values break a rule of the space together.
    """
    try:
        space.validate(config)
        return config
    except ConfigError:
        member = space.members.get(config.template or "") if isinstance(space, TaskSpace) else None
        if member is None:
            return None
    values = {
        knob.name: member.default[knob.name] if knob.name not in config else knob.closest(config[knob.name])
        for knob in member.space.knobs
    }
    moved = Config.of(values)
    return moved.replace(**{TEMPLATE: config.template}) if member.space.satisfies(moved) else None
