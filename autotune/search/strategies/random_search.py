"""Random search: the baseline, and the honest choice for a tiny budget."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from autotune.search.strategy import Unseen
from autotune.search.trial import Trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import Space


class RandomSearch:
    """Samples valid configs without repetition (see `Strategy`)."""

    predicted: Mapping[Config, float] = MappingProxyType({})

    def __init__(self, space: Space, rng: random.Random) -> None:
        self._space = space
        self._rng = rng
        self._unseen = Unseen(space)

    def propose(self, count: int) -> list[Config]:
        first = self._unseen.take(self._space.defaults(), count)
        return first + self._unseen.sample(count - len(first), self._rng)

    def observe(self, trial: Trial) -> None:
        self._unseen.mark(trial.config)
