from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.cost_model.metrics import best_of_top_k, pairwise_accuracy
from autotune.errors import CostModelError

SECONDS = np.array([4.0, 1.0, 2.0, np.inf])
PERFECT = -SECONDS
REVERSED = np.array([1.0, -1.0, 0.0, 2.0])


def test_a_perfect_ranking_scores_one_everywhere() -> None:
    perfect = np.array([1.0, 4.0, 2.0, 0.0])
    assert pairwise_accuracy(perfect, SECONDS) == 1
    for k in (1, 2, 4, 9):
        assert best_of_top_k(perfect, SECONDS, k) == 1


def test_a_reversed_ranking_scores_what_it_deserves() -> None:
    assert pairwise_accuracy(REVERSED, SECONDS) == 0
    assert best_of_top_k(REVERSED, SECONDS, 1) == 0
    assert best_of_top_k(REVERSED, SECONDS, 2) == 0.25


def test_ties_count_half_and_equal_times_do_not_count() -> None:
    assert pairwise_accuracy(np.zeros(3), np.array([1.0, 2.0, 3.0])) == 0.5
    assert pairwise_accuracy(np.array([1.0, 0.0, 5.0]), np.array([1.0, 2.0, 2.0])) == 0.5
    assert math.isnan(pairwise_accuracy(np.zeros(2), np.ones(2)))


def test_pairs_within_the_noise_are_left_out() -> None:
    seconds = np.array([1.0, 1.02, 2.0])
    scores = np.array([1.0, 2.0, 0.0])  # wrong about the close pair alone
    assert pairwise_accuracy(scores, seconds) == pytest.approx(2 / 3)
    assert pairwise_accuracy(scores, seconds, apart=0.03) == 1
    assert math.isnan(pairwise_accuracy(scores[:2], seconds[:2], apart=0.03))


def test_nothing_measured_gives_nan() -> None:
    failed = np.full(3, np.inf)
    assert math.isnan(best_of_top_k(np.zeros(3), failed, 1))


def test_wrong_input_is_refused() -> None:
    with pytest.raises(CostModelError, match="as many scores as times"):
        pairwise_accuracy(np.zeros(2), np.zeros(3))
    with pytest.raises(CostModelError, match="k must be at least 1"):
        best_of_top_k(np.zeros(2), np.ones(2), 0)
    with pytest.raises(CostModelError, match="cannot rank NaN"):
        best_of_top_k(np.array([np.nan]), np.ones(1), 1)
