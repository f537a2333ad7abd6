"""The contract that every cost model keeps, and what is particular to each."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.cost_model.adapted import AdaptedModel
from autotune.cost_model.features import Features
from autotune.cost_model.metrics import best_of_top_k, pairwise_accuracy
from autotune.cost_model.model import CostModel, RandomModel, is_stale
from autotune.errors import CostModelError

MODELS: dict[str, Callable[[], CostModel]] = {
    "random": lambda: RandomModel(random.Random(0)),
    "trees": lambda: AdaptedModel(None),
}
NAMES = ("flops", "bytes", "unroll", "noise")


def candidates(rows: int, seed: int, scale: float = 1.0) -> tuple[Features, NDArray[np.float64]]:
    """Times that follow a roofline, worse without unrolling; one in ten fails."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(1, 100, (rows, len(NAMES))).astype(np.float32)
    values[:, 2] = rng.integers(0, 2, rows)
    seconds = scale * np.maximum(values[:, 0], values[:, 1]) * np.where(values[:, 2] > 0, 1.0, 1.5)
    seconds[rng.uniform(size=rows) < 0.1] = np.inf
    return Features(NAMES, values), seconds.astype(np.float64)


def one_group(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.zeros(len(seconds), np.int64)


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_finite_one_per_row_and_repeatable(name: str) -> None:
    features, seconds = candidates(60, seed=0)
    scores = []
    for _ in range(2):
        model = MODELS[name]()
        model.fit(features, seconds, one_group(seconds))
        scores.append(model.predict(features))
        assert scores[-1].shape == (60,)
        assert scores[-1].dtype == np.float64
        assert np.isfinite(scores[-1]).all()
    assert np.array_equal(scores[0], scores[1])


@pytest.mark.parametrize("name", MODELS)
def test_training_on_failures_only_or_on_one_row_works(name: str) -> None:
    for rows in (1, 7):
        features, _ = candidates(rows, seed=0)
        model = MODELS[name]()
        model.fit(features, np.full(rows, np.inf), np.zeros(rows, np.int64))
        assert np.isfinite(model.predict(features)).all()


@pytest.mark.parametrize("name", MODELS)
def test_impossible_times_are_refused(name: str) -> None:
    features, seconds = candidates(5, seed=0)
    for bad in (0.0, -1.0, np.nan):
        seconds[2] = bad
        with pytest.raises(CostModelError, match="times must be positive"):
            MODELS[name]().fit(features, seconds, one_group(seconds))
    with pytest.raises(CostModelError, match="5 times but 4 groups"):
        MODELS[name]().fit(features, np.ones(5), np.zeros(4, np.int64))


def test_trees_rank_unseen_candidates_of_several_tasks() -> None:
    parts = [candidates(120, seed=task, scale=1000.0**task) for task in range(3)]
    features = Features(NAMES, np.vstack([part.values for part, _ in parts]))
    seconds = np.concatenate([times for _, times in parts])
    groups = np.repeat([5, 2, 9], 120)
    shuffled = np.random.default_rng(0).permutation(len(seconds))
    model = AdaptedModel(None)
    model.fit(Features(NAMES, features.values[shuffled]), seconds[shuffled], groups[shuffled])
    unseen, times = candidates(200, seed=77)
    worked = np.isfinite(times)
    scores = model.predict(unseen)[worked]
    assert pairwise_accuracy(scores, times[worked]) > 0.85
    assert best_of_top_k(scores, times[worked], 10) > 0.9


def test_failed_candidates_are_the_worst_rank() -> None:
    rng = np.random.default_rng(0)
    values = rng.uniform(0, 1, (200, 1)).astype(np.float32)
    seconds = np.where(values[:, 0] > 0.7, np.inf, 1.0 + values[:, 0])
    model = AdaptedModel(None)
    model.fit(Features(("x",), values), seconds, one_group(seconds))
    probe = model.predict(Features(("x",), np.array([[0.95], [0.6], [0.05]], np.float32)))
    assert probe[0] < probe[1] < probe[2]


def test_other_features_than_trained_on_are_refused() -> None:
    features, seconds = candidates(80, seed=1)
    model = AdaptedModel(None)
    model.fit(features, seconds, one_group(seconds))
    with pytest.raises(CostModelError, match="trained on 4 features, this candidate has 3 and lacks 'noise'"):
        model.predict(Features(NAMES[:3], features.values[:, :3]))


def test_an_untrained_model_is_refused() -> None:
    with pytest.raises(CostModelError, match="call fit first"):
        AdaptedModel(None).predict(candidates(2, seed=0)[0])


def test_retraining_waits_for_a_fifth_more_rows() -> None:
    assert is_stale(0, 1)
    assert not is_stale(0, 0)
    assert not is_stale(100, 119)
    assert is_stale(100, 120)
