"""Evolution guided by a cost model: breed configs from the best measured ones, measure what the model likes.

The population starts from the best trials and random configs; each generation is bred by crossover and
mutation, parents drawn by predicted rank. The best unmeasured configs of all generations are proposed,
besides a few random ones, which keep the model honest about regions it has never seen.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.calibration import Calibration
from autotune.cost_model.features import Features
from autotune.cost_model.model import CostModel, is_stale
from autotune.search.strategy import Unseen
from autotune.search.trial import Trial
from autotune.search_spaces.config import Config
from autotune.search_spaces.space import Space


@dataclass(frozen=True, slots=True)
class EvolutionOptions:
    """
    Attributes:
        warmup: trials, the defaults included, before the model is asked.
        population: configs per generation.
        generations: how often a population is bred before proposing.
        elite: share of the first population taken from the best trials; the rest is random.
        mutation: share of children that are mutated; the others are crossovers only.
        epsilon: share of proposals that are random.
    """

    warmup: int = 16
    population: int = 96
    generations: int = 4
    elite: float = 0.3
    mutation: float = 0.85
    epsilon: float = 0.1


class Evolution:
    """Cost-model-guided evolutionary search (see `Strategy`).

    Args:
        model: trained here, on every trial of this space, whenever there are 20 % more of them.
    """

    def __init__(
        self, space: Space, model: CostModel, rng: random.Random, options: EvolutionOptions | None = None
    ) -> None:
        self._space = space
        self._model = model
        self._rng = rng
        self._options = options or EvolutionOptions()
        self._unseen = Unseen(space)
        self._proposed_blindly = 0
        self._trials: dict[Config, Trial] = {}
        self._trained = 0
        self._vectors: dict[Config, NDArray[np.float32]] = {}
        self._calibration: Calibration | None = None
        self.predicted: dict[Config, float] = {}

    def propose(self, count: int) -> list[Config]:
        proposals = self._unseen.take(self._space.defaults(), count)
        blind = max(len(self._trials), self._proposed_blindly + len(proposals))
        missing = min(count - len(proposals), max(0, self._options.warmup - blind))
        proposals += self._unseen.sample(missing, self._rng)
        self._proposed_blindly += len(proposals)
        wanted = count - len(proposals)
        if wanted > 0 and any(trial.seconds is not None for trial in self._trials.values()):
            # Chance decides about the fraction, so that proposing one by one explores as much as in batches.
            explored = sum(self._rng.random() < self._options.epsilon for _ in range(wanted))
            proposals += self._unseen.take(self._bred(), wanted - explored)
        proposals += self._unseen.sample(count - len(proposals), self._rng)
        if self._calibration is not None and proposals:
            # The random ones too: among those that the model liked its order is hardest to get right.
            expected = self._calibration.seconds(np.array(self._score(proposals)))
            self.predicted |= zip(proposals, expected.tolist(), strict=True)
        return proposals

    def observe(self, trial: Trial) -> None:
        self._unseen.mark(trial.config)
        self._trials[trial.config] = trial
        self._vectors[trial.config] = self._space.encode(trial.config)

    def _bred(self) -> list[Config]:
        """Unseen configs, the one with the best predicted score first."""
        self._train()
        options, rng = self._options, self._rng
        best = sorted((t for t in self._trials.values() if t.seconds is not None), key=lambda trial: trial.cost)
        population = [trial.config for trial in best[: int(options.population * options.elite)]]
        while len(population) < options.population:
            population.append(self._space.sample(rng))
        scores: dict[Config, float] = {}
        for generation in range(options.generations + 1):
            fresh = [config for config in dict.fromkeys(population) if config not in scores]
            if fresh:
                scores |= zip(fresh, self._score(fresh), strict=True)
            if generation == options.generations:
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
        return sorted((config for config in scores if config in self._unseen), key=lambda config: -scores[config])

    def _train(self) -> None:
        if is_stale(self._trained, len(self._trials)):
            seconds = np.array([trial.cost for trial in self._trials.values()])
            groups = np.zeros(len(seconds), np.int64)
            features = Features.of(self._space.feature_names, list(self._vectors.values()))
            self._model.fit(features, seconds, groups)
            self._calibration = Calibration.of(self._model.predict(features), seconds)
            self._trained = len(self._trials)

    def _score(self, configs: list[Config]) -> list[float]:
        features = Features(self._space.feature_names, self._space.encode_all(configs))
        return [float(score) for score in self._model.predict(features)]
