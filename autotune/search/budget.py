"""Budget: how much a tuning run may spend, in trials or in wall-clock seconds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from autotune.errors import ConfigError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_TIME = re.compile(r"(?:\d+(?:\.\d+)?[hms])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([hms])")
_TRIALS = re.compile(r"(\d+)\s*trials?")
_BARE = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Budget:
    """Either limit ends the search, whichever comes first; None is no limit.

    Attributes:
        trials: of all tasks together, those found in the database included: the same command, repeated,
            continues and does not start again.
        seconds: of this run.
    """

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.trials is None and self.seconds is None:
            raise ConfigError("a budget needs a number of trials or a time")
        if self.trials is not None and self.trials < 1:
            raise ConfigError(f"a budget needs at least one trial, got {self.trials}")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise ConfigError(f"a budget's time must be positive, got {self.seconds} s")

    @staticmethod
    def parse(text: str) -> Budget:
        """Reads "5m", "90s", "1h30m" or "200 trials". A number without a unit might mean any of them: it is refused."""
        text = text.strip().lower()
        if found := _TRIALS.fullmatch(text):
            return Budget(trials=int(found[1]))
        if _TIME.fullmatch(text):
            return Budget(seconds=sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
        if _BARE.fullmatch(text):
            raise ConfigError(f"a budget of {text} says not of what: write {text}s, {text}m or {text} trials")
        raise ConfigError(f"{text!r} is no budget; write a time like 5m, 90s or 1h30m, or a number like '200 trials'")

    def is_spent(self, trials: int, seconds: float) -> bool:
        """Whether nothing more should be started after so many trials and seconds."""
        return self.trials_left(trials) <= 0 or (self.seconds is not None and seconds >= self.seconds)

    def spent(self, trials: int, seconds: float) -> float:
        """Which share of the budget that is, by the limit that is nearer."""
        by_trials = 0.0 if self.trials is None else trials / self.trials
        return max(by_trials, 0.0 if self.seconds is None else seconds / self.seconds)

    def trials_left(self, trials: int) -> float:
        return math.inf if self.trials is None else self.trials - trials

    def eta(self, trials: int, new_trials: int, seconds: float) -> float | None:
        """Seconds until the budget is spent, at the pace of this run; None before there is a pace."""
        by_time = math.inf if self.seconds is None else max(0.0, self.seconds - seconds)
        if self.trials is None:
            return by_time
        if not new_trials:
            return None if math.isinf(by_time) else by_time
        return min(by_time, max(0.0, self.trials_left(trials)) * seconds / new_trials)

    def __str__(self) -> str:
        limits = [] if self.trials is None else [f"{self.trials} trials"]
        limits += [] if self.seconds is None else [f"{self.seconds:g} s"]
        return " or ".join(limits)
