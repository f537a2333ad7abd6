"""AdaptedModel: begins with what the prior knows and learns from this task how it is different.

Trees are grown on what the prior leaves unexplained, so that a few trials correct it a little and many correct it
where it is wrong: own data gains weight as it grows, without a knob for that. Without a prior all is unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.features import Features, check_same
from autotune.cost_model.forest import Forest
from autotune.cost_model.model import check_rows
from autotune.cost_model.prior import Prior
from autotune.cost_model.training import closeness
from autotune.errors import CostModelError

if TYPE_CHECKING:
    import xgboost

Array = NDArray[np.float64]


@dataclass(slots=True)
class AdaptedModel:
    """See `CostModel`; scores are log(best / seconds) but for a constant, as far as that is known.

    Args:
        prior: of nests; None knows nothing.
        rounds, max_depth, learning_rate: of the trees of this task.
        threads: for training and prediction. `seed`: of XGBoost's sampling.
    """

    prior: Forest | Prior | None
    rounds: int = 100
    max_depth: int = 4
    learning_rate: float = 0.1
    threads: int = 1
    seed: int = 0
    _booster: xgboost.Booster | None = field(default=None, repr=False)
    _trained: Features | None = field(default=None, repr=False)

    @property
    def ready(self) -> bool:
        """Whether it can predict now: trained, or with a prior."""
        return self._booster is not None or self.prior is not None

    def fit(self, features: Features, seconds: Array, groups: NDArray[np.int64]) -> None:
        import xgboost  # half a second, and a run that continues another has begun before

        check_rows(seconds, groups, len(features))
        labels = np.zeros(len(seconds))
        for group in np.unique(groups):
            rows = groups == group
            labels[rows] = closeness(seconds[rows]) if np.isfinite(seconds[rows]).any() else 0.0
        parameters: dict[str, object] = {
            "objective": "reg:squarederror",
            "base_score": 0.0,
            "tree_method": "hist",
            "max_depth": self.max_depth,
            "learning_rate": self.learning_rate,
            # A node sees some of the columns: with tens of trials one that happens to fit would be in all trees.
            "colsample_bynode": 0.5,
            "min_child_weight": 0.5,
            "nthread": self.threads,
            "seed": self.seed,
        }
        known = self._known(features)
        margin, weight = known - known.mean() + labels.mean(), np.exp(labels)
        matrix = xgboost.DMatrix(
            features.values, labels, base_margin=margin, weight=weight, missing=np.nan, nthread=self.threads
        )
        self._booster = xgboost.train(parameters, matrix, self.rounds)
        self._trained = Features(features.names, features.values[:0], features.version)

    def predict(self, features: Features) -> Array:
        known = self._known(features)
        if self._booster is None or self._trained is None:
            if self.prior is None:
                raise CostModelError("the model has not been trained; call fit first")
            return known
        import xgboost

        check_same(self._trained, features)
        matrix = xgboost.DMatrix(features.values, base_margin=known, missing=np.nan, nthread=self.threads)
        return np.asarray(self._booster.predict(matrix), np.float64)

    def _known(self, features: Features) -> Array:
        """(rows,) what the prior says; of rows that are no nests, what it says of the middling ones.

        The columns of the nests are those whose names end as the prior's, behind a template's name.
        """
        scores = np.full(len(features), np.nan)
        if self.prior is not None:
            for columns in nest_columns(features.names, self.prior.names):
                rows = np.flatnonzero(~np.isnan(features.values[:, columns]).any(axis=1))
                if len(rows):
                    values = features.values[rows][:, columns]
                    scores[rows] = self.prior.predict(Features(self.prior.names, values, self.prior.version))
        known = ~np.isnan(scores)
        scores[~known] = np.median(scores[known]) if known.any() else 0.0
        return scores


def nest_columns(names: tuple[str, ...], wanted: tuple[str, ...]) -> list[list[int]]:
    """For each template whose features are those of nests, the numbers of their columns in the order wanted."""
    places = {name: n for n, name in enumerate(names)}
    heads = dict.fromkeys(name[: -len(wanted[0])] for name in names if name.endswith(wanted[0]))
    return [[places[head + w] for w in wanted] for head in heads if all(head + w in places for w in wanted)]
