"""Trial: one config and what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from autotune.errors import MeasureError
from autotune.search_spaces.space.config import Config

SKIPPED = "spills"
"""The failure kind of what was built and not run."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Either `seconds`, of a kernel whose output was verified, or the `failure` kind.

    `predicted`: seconds that the cost model expected when it chose the config; None where it was not asked.
    `spent`: seconds that building and measuring took; None of a trial of another run.
    `compared`: timed in turn with the task's default, among the finalists.
    `disturbed`: measured while the machine was busy with other things; it counts less than any that was not.
    """

    config: Config
    seconds: float | None = None
    failure: str | None = None
    predicted: float | None = field(default=None, compare=False)
    spent: float | None = field(default=None, compare=False)
    disturbed: bool = field(default=False, compare=False)
    compared: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.failure is None):
            raise MeasureError(f"a trial has either seconds or a failure, got {self.seconds} and {self.failure}")

    @property
    def cost(self) -> float:
        """Seconds; infinity for a failure, so that failures sort last."""
        return math.inf if self.seconds is None else self.seconds


def best_trial(trials: Iterable[Trial]) -> Trial | None:
    """The fastest one that worked, of those measured in quiet if there are any; the earliest among equals."""
    working = (trial for trial in trials if trial.seconds is not None)
    return min(working, key=lambda trial: (trial.disturbed, trial.cost), default=None)
