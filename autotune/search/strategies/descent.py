"""Descent: the neighbours of the best config, then of the best elsewhere: what finishes what evolution began.

A model errs most among configs that are all good. Descent needs none: every neighbour of the best is tried before
another centre is, so it ends in a config that no single step improves. The model only says which neighbour comes first.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from autotune.search.strategies.ranking import Ranking
from autotune.search.strategy import Unseen
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import Space


class Descent:
    """A `Source` that needs one trial that worked.

    Trials that are steps from one another belong to one walk, named by the config it started from. When no step from a
    walk's best is left, the search restarts from the best of the next walk; when all have ended, from any other trial.
    """

    def __init__(self, space: Space, ranking: Ranking, rng: random.Random, unseen: Unseen) -> None:
        self._space, self._ranking, self._rng, self._unseen = space, ranking, rng, unseen
        self._neighbours: dict[Config, list[Config]] = {}
        self._walks: dict[Config, Config] = {}

    def configs(self) -> Iterator[Config]:
        """One step from the best, the best predicted first; then from the next centre."""
        for centre in self._centres():
            steps = self._steps(centre)
            if steps and self._ranking.ready:
                scores = dict(zip(steps, self._ranking.scores(steps), strict=True))
                steps.sort(key=lambda config: -scores[config])
            for step in steps:
                self._walks.setdefault(step, self._walks.get(centre, centre))
                yield step

    def _steps(self, centre: Config) -> list[Config]:
        if centre not in self._neighbours:
            self._neighbours[centre] = self._space.neighbours(centre, self._rng)
        self._neighbours[centre] = [step for step in self._neighbours[centre] if step in self._unseen]
        return list(self._neighbours[centre])

    def _centres(self) -> list[Config]:
        best = [trial.config for trial in self._ranking.best()]
        leaders: dict[Config, Config] = {}
        for config in best:
            leaders.setdefault(self._walks.get(config, config), config)
        return list(dict.fromkeys([*leaders.values(), *best]))
