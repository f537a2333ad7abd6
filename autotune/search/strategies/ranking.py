"""Ranking: the cost model of one search, what it was trained on, and what it says of configs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.calibration import Calibration
from autotune.cost_model.features import Features
from autotune.cost_model.model import CostModel, is_stale
from autotune.search.trial import Trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import Space


class Ranking:
    """Trains a model on the trials of one space, and ranks by it.

    Args:
        model: trained here whenever there are 20 % more trials, the first time when there are `enough`, on those that
            nobody disturbed where these are enough. One that is ready ranks before that by what it learned elsewhere.
    """

    def __init__(self, space: Space, model: CostModel, enough: int) -> None:
        self._space = space
        self._model = model
        self._enough = enough
        self._vectors: dict[Config, NDArray[np.float32]] = {}
        self._trained = 0
        self._calibration: Calibration | None = None
        self.trials: dict[Config, Trial] = {}

    @property
    def ready(self) -> bool:
        """Whether the model can rank now."""
        return self._model.ready or (len(self.trials) >= self._enough and self.works)

    @property
    def works(self) -> bool:
        """Whether any trial worked."""
        return any(trial.seconds is not None for trial in self.trials.values())

    def observe(self, trial: Trial) -> None:
        self.trials[trial.config] = trial

    def best(self) -> list[Trial]:
        """The trials that worked, fastest first; behind them those that were disturbed, whose times may be anything."""
        working = (trial for trial in self.trials.values() if trial.seconds is not None)
        return sorted(working, key=lambda trial: (trial.disturbed, trial.cost))

    def scores(self, configs: Sequence[Config]) -> list[float]:
        """Higher is faster; for a ranking that is ready."""
        self.learn()
        return [float(score) for score in self._model.predict(self._features(configs))]

    def seconds(self, configs: Sequence[Config]) -> dict[Config, float]:
        """What the model expects of each; nothing before it was held against times of this space."""
        if self._calibration is None or not configs:
            return {}
        expected = self._calibration.seconds(np.array(self._model.predict(self._features(configs))))
        return dict(zip(configs, expected.tolist(), strict=True))

    def learn(self) -> int:
        """Trains the model where that is due; the number of trials that it knows then."""
        if is_stale(self._trained, len(self.trials)):
            self._train()
        return self._trained

    def _train(self) -> None:
        quiet = [trial for trial in self.trials.values() if not trial.disturbed]
        enough = sum(trial.seconds is not None for trial in quiet) >= self._enough
        trials = quiet if enough else list(self.trials.values())
        seconds = np.array([trial.cost for trial in trials])
        features = self._features([trial.config for trial in trials])
        if len(self.trials) >= self._enough:
            self._model.fit(features, seconds, np.zeros(len(seconds), np.int64))
        if self.works:
            self._calibration = Calibration.of(self._model.predict(features), seconds)
        self._trained = len(self.trials)

    def _features(self, configs: Sequence[Config]) -> Features:
        fresh = [config for config in dict.fromkeys(configs) if config not in self._vectors]
        self._vectors |= zip(fresh, self._space.encode_all(fresh), strict=True)
        return Features.of(self._space.feature_names, [self._vectors[config] for config in configs])
