"""Search: which config to measure next, for which task, and when to stop. See docs/concepts/search.md."""

from __future__ import annotations

from autotune.search.budget import Budget
from autotune.search.effort import DEFAULT_EFFORT, EFFORTS, Effort, effort_of
from autotune.search.events import (
    Callback,
    Event,
    FinalistsChosen,
    FinalistsCompared,
    FinalistsLeft,
    RecordsOutdated,
    TaskResumed,
    TaskStopped,
    TrialFinished,
)
from autotune.search.outcome import TaskOutcome, TuneOutcome
from autotune.search.strategies import DEFAULT_STRATEGY, STRATEGIES, make_strategy
from autotune.search.strategy import Strategy
from autotune.search.task import TuningTask
from autotune.search.trial import Trial
from autotune.search.tuner import TuneOptions, tune

__all__ = [
    "DEFAULT_EFFORT",
    "DEFAULT_STRATEGY",
    "EFFORTS",
    "STRATEGIES",
    "Budget",
    "Callback",
    "Effort",
    "Event",
    "FinalistsChosen",
    "FinalistsCompared",
    "FinalistsLeft",
    "RecordsOutdated",
    "Strategy",
    "TaskOutcome",
    "TaskResumed",
    "TaskStopped",
    "Trial",
    "TrialFinished",
    "TuneOptions",
    "TuneOutcome",
    "TuningTask",
    "effort_of",
    "make_strategy",
    "tune",
]
