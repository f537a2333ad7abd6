"""How a computation is done: immutable schedules made of checked primitives."""

from autotune.schedule.schedule import Schedule

__all__ = ["Schedule"]
