"""Which cost model a task is searched with: one that has learned from other tasks, where its features carry over."""

from __future__ import annotations

from collections.abc import Callable

from autotune.cost_model.adapted import AdaptedModel, nest_columns
from autotune.cost_model.features import FEATURES_VERSION
from autotune.cost_model.model import CostModel
from autotune.cost_model.prior import prior
from autotune.search_spaces.sketch.nest_numbers import NAMES
from autotune.search_spaces.space.space import Space

ModelMaker = Callable[[Space, int], CostModel]
"""A model for a space, from a seed."""


def model_for(space: Space, seed: int) -> CostModel:
    """The prior, adapted to the task as trials come in, where the space has nests; else one from nothing."""
    forest = prior(NAMES, FEATURES_VERSION) if nest_columns(space.feature_names, NAMES) else None
    return AdaptedModel(forest, seed=seed)
