"""XGBoost as a cost model: learns an order (rank objective) or relative speeds (regression).

Both see throughput normalised within each task, so that tasks of any size weigh the same and a failed
candidate is simply the slowest. A fit on some hundred rows takes tens of milliseconds on one thread.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import xgboost
from numpy.typing import NDArray

from autotune.cost_model.features import Features, check_same
from autotune.cost_model.model import throughput
from autotune.errors import CostModelError

Objective = Literal["rank:pairwise", "rank:ndcg", "reg:squarederror"]


@dataclass(slots=True)
class XGBoostModel:
    """Gradient-boosted trees (see `CostModel`).

    Args:
        objective: rank:* learns which of two is faster, reg:squarederror the relative speed.
        rounds: number of trees.
        threads: for training and prediction; explicit, because the default takes the whole machine.
        seed: of XGBoost's own sampling.
    """

    objective: Objective = "rank:pairwise"
    rounds: int = 60
    max_depth: int = 4
    learning_rate: float = 0.2
    threads: int = 1
    seed: int = 0
    _booster: xgboost.Booster | None = field(default=None, repr=False)
    _trained: Features | None = field(default=None, repr=False)

    @property
    def ready(self) -> bool:
        return self._booster is not None

    def fit(self, features: Features, seconds: NDArray[np.float64], groups: NDArray[np.int64]) -> None:
        if len(features) != len(seconds) or not len(features):
            raise CostModelError(
                f"{len(seconds)} times for {len(features)} candidates; there must be as many, and some"
            )
        labels = throughput(seconds, groups)
        order = np.argsort(groups, kind="stable")  # XGBoost wants each group in one piece
        matrix = xgboost.DMatrix(
            features.values[order], labels[order], missing=np.nan, nthread=self.threads, qid=groups[order]
        )
        parameters: dict[str, object] = {
            "objective": self.objective,
            "tree_method": "hist",
            "max_depth": self.max_depth,
            "learning_rate": self.learning_rate,
            "min_child_weight": 0.1,
            "nthread": self.threads,
            "seed": self.seed,
        }
        if self.objective.startswith("rank:"):
            # Every candidate against the 100 best so far: sampled pairs were 2-6 points of accuracy worse.
            parameters |= {"lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": 100}
        if self.objective == "rank:ndcg":
            # Its labels are grades: 2^grade - 1 is the gain, up to 31.
            matrix.set_label(np.rint(labels[order] * 31))
            parameters |= {"ndcg_exp_gain": False}
        self._booster = xgboost.train(parameters, matrix, self.rounds)
        self._trained = Features(features.names, features.values[:0], features.version)

    def predict(self, features: Features) -> NDArray[np.float64]:
        if self._booster is None or self._trained is None:
            raise CostModelError("the model has not been trained; call fit first")
        check_same(self._trained, features)
        matrix = xgboost.DMatrix(features.values, missing=np.nan, nthread=self.threads)
        return np.asarray(self._booster.predict(matrix), np.float64)

    def gains(self) -> dict[str, float]:
        """Each used feature's share of the trees' total gain, largest first: what the model looks at."""
        if self._booster is None or self._trained is None:
            raise CostModelError("the model has not been trained; call fit first")
        names = self._trained.names
        raw = self._booster.get_score(importance_type="total_gain")
        gains = {names[int(column.removeprefix("f"))]: float(str(gain)) for column, gain in raw.items()}
        total = sum(gains.values()) or 1.0
        return {name: gain / total for name, gain in sorted(gains.items(), key=lambda item: -item[1])}

    def save(self, path: Path) -> None:
        """Writes JSON: XGBoost's own text of the trees, beside what autotune must know and a checksum."""
        if self._booster is None or self._trained is None:
            raise CostModelError("there is nothing to save; train the model first")
        trees = bytes(self._booster.save_raw("json")).decode()
        about = {"features": self._trained.names, "version": self._trained.version, "objective": self.objective}
        path.write_text(json.dumps({**about, "sha256": _digest(trees), "trees": trees}))

    @classmethod
    def load(cls, path: Path, *, threads: int = 1) -> XGBoostModel:
        """Reads what `save` wrote; CostModelError when the file is anything else."""
        try:
            saved = json.loads(path.read_text())
            names, version = tuple(saved["features"]), int(saved["version"])
            model = cls(objective=saved["objective"], threads=threads)
            # XGBoost aborts the process on some damaged files, so it sees only text that is whole.
            if _digest(saved["trees"]) != saved["sha256"]:
                raise ValueError("checksum")
            model._booster = xgboost.Booster({"nthread": threads})
            model._booster.load_model(bytearray(saved["trees"].encode()))
        except OSError as error:
            raise CostModelError(f"cannot read the cost model {path}: {error.strerror}") from None
        except (xgboost.core.XGBoostError, ValueError, KeyError, TypeError, AttributeError):
            raise CostModelError(f"{path} is damaged or not a cost model saved by autotune; train a new one") from None
        model._trained = Features(names, np.empty((0, len(names)), np.float32), version)
        return model


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
