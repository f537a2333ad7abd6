"""The untuned choice of a sketch: the best of many tilings by what a model expects of them, no kernel built."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.search_spaces.config import Config
from autotune.search_spaces.space import ConfigSpace

SAMPLES = 256
ROUNDS = 6
KEPT = 12
CHILDREN = 6

Scorer = Callable[[Sequence[Config]], NDArray[np.float64]]
"""Expected costs of configs, lower is faster."""


def foreseen(space: ConfigSpace, cost: Scorer, seed: str) -> list[Config]:
    """The best configs that sampling and local descent find, best first; the same for the same seed.

    Args:
        space: to choose from.
        cost: what is expected of configs.
        seed: of the sample.
    """
    rng = random.Random(seed)
    known: dict[Config, float] = {}

    def look(configs: list[Config]) -> None:
        fresh = [config for config in dict.fromkeys(configs) if config not in known]
        if fresh:
            known.update(zip(fresh, cost(fresh).tolist(), strict=True))

    look([space.sample(rng) for _ in range(SAMPLES)])
    for _ in range(ROUNDS):
        best = sorted(known, key=lambda config: known[config])[:KEPT]
        look([space.mutate(config, rng) for config in best for _ in range(CHILDREN)])
    return sorted(known, key=lambda config: known[config])
