"""Strategy: proposes configs and learns from trials. And `Unseen`, so that none is proposed twice."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from autotune.search.trial import Trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import ENUMERABLE, Space

SAMPLE_TRIES = 100


class Strategy(Protocol):
    """One search over one space. Proposals may be observed late, in any order, or never."""

    @property
    def predicted(self) -> Mapping[Config, float]:
        """Seconds that a cost model expected of each config when it was proposed; empty where none was asked."""

    def propose(self, count: int) -> list[Config]:
        """Up to `count` valid configs, none proposed or observed before; the space's defaults come first.

        Fewer than `count` only when the space is exhausted, or seems to be; none then.
        """

    def observe(self, trial: Trial) -> None:
        """Takes a result into account, also one that another run measured."""


class Unseen:
    """The configs of a space that were neither proposed nor observed yet."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._seen: set[Config] = set()
        self._rest: Iterator[Config] | None = None

    def take(self, configs: Iterable[Config], count: int) -> list[Config]:
        """The first `count` that are new; they are not new any more. Reads no further than it needs."""
        taken: list[Config] = []
        remaining = iter(configs)
        while len(taken) < count and (config := next(remaining, None)) is not None:
            if config not in self._seen:
                self._seen.add(config)
                taken.append(config)
        return taken

    def mark(self, config: Config) -> None:
        self._seen.add(config)

    def __contains__(self, config: Config) -> bool:
        return config not in self._seen

    def sample(self, count: int, rng: random.Random) -> list[Config]:
        """New configs at random; fewer when hardly any is left."""
        taken: list[Config] = []
        while len(taken) < count and self._rest is None:
            drawn = self.take((self._space.sample(rng) for _ in range(SAMPLE_TRIES)), 1)
            taken += drawn
            if not drawn:
                # Nearly everything is seen: go through what remains, in random order.
                rest = list(self._space.enumerate()) if self._space.size <= ENUMERABLE else []
                rng.shuffle(rest)
                self._rest = iter(rest)
        if self._rest is not None:
            taken += self.take(self._rest, count - len(taken))
        return taken
