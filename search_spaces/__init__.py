"""Search spaces: knobs, configs, and the templates that turn a config into a schedule."""

from __future__ import annotations

from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice, flag, tile
from autotune.search_spaces.space.registry import (
    Template,
    alike,
    check_config,
    default_config,
    default_of,
    lookup,
    make_schedule,
    task_space,
    template,
    templates_for,
)
from autotune.search_spaces.space.space import ConfigSpace, Constraint, Derived, Space, TaskSpace
from autotune.search_spaces.space.templates import TEMPLATE_MODULES

__all__ = [
    "alike",
    "TEMPLATE_MODULES",
    "Choice",
    "Config",
    "ConfigSpace",
    "Constraint",
    "Derived",
    "Interface",
    "Space",
    "TaskSpace",
    "Template",
    "check_config",
    "default_config",
    "default_of",
    "flag",
    "lookup",
    "make_schedule",
    "task_space",
    "template",
    "templates_for",
    "tile",
]
