"""Grid search: every valid config in order. For small spaces, and to record a space for simulation."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType

from autotune.search.strategy import Unseen
from autotune.search.trial import Trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import Space


class GridSearch:
    """Enumerates the space (see `Strategy`)."""

    predicted: Mapping[Config, float] = MappingProxyType({})

    def __init__(self, space: Space) -> None:
        self._unseen = Unseen(space)
        self._configs = chain(space.defaults(), space.enumerate())

    def propose(self, count: int) -> list[Config]:
        return self._unseen.take(self._configs, count)

    def observe(self, trial: Trial) -> None:
        self._unseen.mark(trial.config)
