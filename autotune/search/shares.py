"""TimeShares: where a tuning run spends its time, so that a slow part is seen and not guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.features import Features
from autotune.cost_model.model import CostModel

Clock = Callable[[], float]

OWN_PARTS = ("search", "model", "record", "wait")
WORKER_PARTS = ("build", "run")


@dataclass(slots=True)
class TimeShares:
    """Seconds by part.

    `search`, `model`, `record` and `wait` (for results) are this process's own time and add up to nearly all of it.
    `build` and `run` are the workers', summed over them; they pass during the others.
    """

    clock: Clock
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*OWN_PARTS, *WORKER_PARTS), 0.0))
    _inner: list[float] = field(default_factory=list, repr=False)

    @contextmanager
    def spending(self, part: str) -> Iterator[None]:
        """Adds the time inside to `part`; what a part within it spends is that part's alone."""
        start = self.clock()
        self._inner.append(0.0)
        try:
            yield
        finally:
            whole = self.clock() - start
            self.seconds[part] += whole - self._inner.pop()
            if self._inner:
                self._inner[-1] += whole

    def add(self, part: str, seconds: float) -> None:
        self.seconds[part] += seconds


@dataclass(slots=True)
class TimedModel:
    """A cost model whose time is accounted for (see `CostModel`)."""

    model: CostModel
    shares: TimeShares

    @property
    def ready(self) -> bool:
        return self.model.ready

    def fit(self, features: Features, seconds: NDArray[np.float64], groups: NDArray[np.int64]) -> None:
        with self.shares.spending("model"):
            self.model.fit(features, seconds, groups)

    def predict(self, features: Features) -> NDArray[np.float64]:
        with self.shares.spending("model"):
            return self.model.predict(features)
