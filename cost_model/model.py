"""CostModel: ranks candidates before they are measured. Here also the baseline that a learnt one must beat."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.features import Features
from autotune.errors import CostModelError

RETRAIN_GROWTH = 0.2


class CostModel(Protocol):
    """Learns from measured candidates, then scores new ones."""

    @property
    def ready(self) -> bool:
        """Whether it can predict now: it was trained, here or before it came here."""

    def fit(self, features: Features, seconds: NDArray[np.float64], groups: NDArray[np.int64]) -> None:
        """Trains on all candidates measured here, and on no earlier call's rows; what a model knew before it came
        here may stay its prior.

        Args:
            features: one row per measured candidate.
            seconds: (rows,) measured times; infinity for a candidate that failed.
            groups: (rows,) the task of each row; only candidates of one task are compared.
        """

    def predict(self, features: Features) -> NDArray[np.float64]:
        """(rows,) scores; higher is faster. Only their order within one task means something."""


def is_stale(trained_rows: int, rows: int) -> bool:
    """Whether enough was measured since the last fit to train again: 20 % more rows."""
    return rows > 0 and rows >= trained_rows * (1 + RETRAIN_GROWTH)


def check_rows(seconds: NDArray[np.float64], groups: NDArray[np.int64], candidates: int | None = None) -> None:
    """CostModelError unless there is a time and a group for each of so many candidates, and at least one."""
    if candidates is not None and (len(seconds) != candidates or not candidates):
        raise CostModelError(f"{len(seconds)} times for {candidates} candidates; there must be as many, and some")
    if len(seconds) != len(groups):
        raise CostModelError(f"{len(seconds)} times but {len(groups)} groups; give one of each per candidate")
    if np.isnan(seconds).any() or (seconds <= 0).any():
        raise CostModelError("times must be positive, or infinity for a failed candidate")


@dataclass(slots=True)
class RandomModel:
    """Scores at random: what a search without any knowledge does."""

    rng: random.Random

    @property
    def ready(self) -> bool:
        return True

    def fit(self, features: Features, seconds: NDArray[np.float64], groups: NDArray[np.int64]) -> None:
        check_rows(seconds, groups)

    def predict(self, features: Features) -> NDArray[np.float64]:
        return np.array([self.rng.random() for _ in range(len(features))])
