"""Evolution: configs bred from the best measured ones, those first that a cost model likes.

The population starts from the best trials, what was bred before, at first what the space finds promising, and random
configs; each generation is bred by crossover and mutation, parents drawn by predicted rank. Where a population goes on,
fewer generations do. All of them together are looked at, so the best of none is lost, and as many as a population are
proposed, batch after batch, until the model learns: before that, breeding anew would find much the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from autotune.search.strategies.ranking import Ranking
from autotune.search.strategy import Unseen
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import Space


@dataclass(frozen=True, slots=True)
class EvolutionOptions:
    """
    Attributes:
        population: configs per generation.
        generations: how often a random population is bred before proposing; half as often where half of it is chosen.
        elite: share of the first population taken from the best trials.
        mutation: share of children that are mutated; the others are crossovers only.
    """

    population: int = 48
    generations: int = 4
    elite: float = 0.3
    mutation: float = 0.85


class Evolution:
    """A `Source` that needs a ranking that is ready."""

    def __init__(
        self,
        space: Space,
        ranking: Ranking,
        rng: random.Random,
        unseen: Unseen,
        options: EvolutionOptions | None = None,
    ) -> None:
        self._space, self._ranking, self._rng = space, ranking, rng
        self._options = options or EvolutionOptions()
        self._unseen = unseen
        self._bred: list[Config] = []
        self._learned = -1

    def configs(self) -> Iterator[Config]:
        """The one with the best predicted score first."""
        if not self._ranking.ready:
            return
        self._bred = [config for config in self._bred if config in self._unseen]
        if not self._bred or self._ranking.learn() != self._learned:
            self._bred = self._breed()
            self._learned = self._ranking.learn()
        yield from self._bred

    def _breed(self) -> list[Config]:
        options, rng = self._options, self._rng
        population = [trial.config for trial in self._ranking.best()[: int(options.population * options.elite)]]
        before = self._bred or self._space.promising(options.population // 2)
        while len(population) < options.population:
            population.append(self._space.sample(rng))
        population += before[: options.population // 2]
        generations = options.generations // 2 if before else options.generations
        scores: dict[Config, float] = {}
        for generation in range(generations + 1):
            fresh = [config for config in dict.fromkeys(population) if config not in scores]
            if fresh:
                scores |= zip(fresh, self._ranking.scores(fresh), strict=True)
            if generation == generations:
                break
            ranked = sorted(dict.fromkeys(population), key=lambda config: -scores[config])
            weights = [1 / (place + 4) for place in range(len(ranked))]
            population = ranked[: options.population // 8]
            mothers = rng.choices(ranked, weights, k=options.population - len(population))
            fathers = rng.choices(ranked, weights, k=len(mothers))
            for mother, father in zip(mothers, fathers, strict=True):
                child = self._space.crossover(mother, father, rng)
                mutate = child == mother or rng.random() < options.mutation
                population.append(self._space.mutate(child, rng) if mutate else child)
        ordered = sorted(scores, key=lambda config: -scores[config])
        return list(islice((config for config in ordered if config in self._unseen), options.population))
