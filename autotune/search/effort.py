"""Effort: how thoroughly to search, as one word. The budget says how long; the effort, how to spend it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from autotune.errors import ConfigError
from autotune.search_spaces.space.space import suggest


@dataclass(frozen=True, slots=True)
class Effort:
    """
    Attributes:
        budget: how long to search when nobody says.
        warmup, batch, patience, finalists: see `TuneOptions`.
    """

    budget: str
    warmup: int
    batch: int
    patience: int | None
    finalists: int


DEFAULT_EFFORT = "default"
EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {
        "quick": Effort(budget="1m", warmup=4, batch=4, patience=32, finalists=2),
        "default": Effort(budget="5m", warmup=16, batch=8, patience=None, finalists=3),
        "thorough": Effort(budget="30m", warmup=32, batch=8, patience=None, finalists=8),
    }
)
"""Quick: few trials for each kernel at first, and an end for those that gain no more. Thorough: no kernel is judged by
its first trials, and more of the best are compared with the default at the end."""


def effort_of(name: str) -> Effort:
    """The effort of that name; ConfigError listing the names for another."""
    if name not in EFFORTS:
        raise ConfigError(f"unknown effort {name!r}{suggest(name, list(EFFORTS))}; known: {', '.join(EFFORTS)}")
    return EFFORTS[name]
