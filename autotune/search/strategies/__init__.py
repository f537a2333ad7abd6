"""The strategies by name, one file each."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from autotune.cost_model.model import CostModel
from autotune.errors import ConfigError
from autotune.search.strategies.grid import GridSearch
from autotune.search.strategies.guided import Guided, GuidedOptions
from autotune.search.strategies.random_search import RandomSearch
from autotune.search.strategy import Strategy
from autotune.search_spaces.space.space import Space, suggest

DEFAULT_STRATEGY = "guided"
STRATEGIES: Mapping[str, Callable[[Space, CostModel, random.Random], Strategy]] = {
    "guided": Guided,
    "evolution": lambda space, model, rng: Guided(space, model, rng, GuidedOptions(sources=("evolution",))),
    "descent": lambda space, model, rng: Guided(space, model, rng, GuidedOptions(sources=("descent",))),
    "random": lambda space, model, rng: RandomSearch(space, rng),
    "grid": lambda space, model, rng: GridSearch(space),
}


def make_strategy(name: str, space: Space, model: CostModel, rng: random.Random) -> Strategy:
    """The strategy of that name; `random` and `grid` use no model. ConfigError listing the names for another."""
    if name not in STRATEGIES:
        known = list(STRATEGIES)
        raise ConfigError(f"unknown search strategy {name!r}{suggest(name, known)}; known: {', '.join(known)}")
    return STRATEGIES[name](space, model, rng)
