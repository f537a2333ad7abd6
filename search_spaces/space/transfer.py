"""Transfer: a config of one space as the nearest point of another, of the same template at another size."""

from __future__ import annotations

import math

from autotune.errors import ConfigError
from autotune.search_spaces.space.config import Config, KnobValue
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.space import Space, TaskSpace


def nearest(space: Space, config: Config) -> Config | None:
    """The config itself where it is valid, else with the closest values that its knobs have here; the canonical one.

    None when the task has no such template, or when the closest values break a rule of the space together.
    """
    member = space.members.get(config.template or "") if isinstance(space, TaskSpace) else None
    try:
        space.validate(config)
        moved = config.without("template") if member else config
    except ConfigError:
        if member is None:
            return None
        moved = Config.of(
            (knob.name, closest(knob, config[knob.name]) if knob.name in config else member.default[knob.name])
            for knob in member.space.knobs
        )
        if not member.space.satisfies(moved):
            return None
    if member is None:
        return moved
    return member.space.canonical(moved).replace(template=config.template)


def closest(knob: Choice, value: KnobValue) -> KnobValue:
    """The value itself, else the closest by the logarithms of its numbers; the default for one of another kind."""
    try:
        return knob.values[knob.index(value)]
    except ConfigError:
        wanted, first = _numbers(value), _numbers(knob.values[0])
    if not wanted or len(wanted) != len(first) or isinstance(value, tuple) != isinstance(knob.values[0], tuple):
        return knob.values[knob.index(knob.default)]

    def distance(other: KnobValue) -> float:
        return sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in zip(wanted, _numbers(other), strict=True))

    return min(knob.values, key=distance)


def _numbers(value: KnobValue) -> tuple[int, ...]:
    """Empty for names and switches, which have no sizes."""
    if isinstance(value, tuple):
        return value
    return (value,) if type(value) is int else ()
