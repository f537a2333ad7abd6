"""How good a ranking is. Scores: higher means predicted faster. Seconds: measured; infinity for failed candidates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.errors import CostModelError

Array = NDArray[np.float64]


def pairwise_accuracy(scores: Array, seconds: Array, apart: float = 0.0) -> float:
    """The share of pairs with different times that the scores order rightly; equal scores count half. NaN if none.

    Args:
        apart: leaves out pairs whose times differ by no more than this share: their order may be noise.
    """
    _check(scores, seconds)
    faster = seconds[:, None] * (1 + apart) < seconds[None, :]
    pairs = int(faster.sum())
    if not pairs:
        return float("nan")
    gap = scores[:, None] - scores[None, :]
    return float(((gap > 0) & faster).sum() + 0.5 * ((gap == 0) & faster).sum()) / pairs


def best_of_top_k(scores: Array, seconds: Array, k: int) -> float:
    """Speed of the best among the k best scored, relative to the best of all: what measuring k would reach."""
    _check(scores, seconds, k)
    best = seconds.min()
    return float(best / seconds[_top(scores, k)].min()) if np.isfinite(best) else float("nan")


def _top(scores: Array, k: int) -> NDArray[np.intp]:
    return np.argsort(-scores, kind="stable")[:k]


def _check(scores: Array, seconds: Array, k: int = 1) -> None:
    if scores.shape != seconds.shape or scores.ndim != 1 or not len(scores):
        raise CostModelError(
            f"a metric needs as many scores as times and at least one: {scores.shape}, {seconds.shape}"
        )
    if k < 1:
        raise CostModelError(f"k must be at least 1, got {k}")
    if np.isnan(scores).any() or np.isnan(seconds).any():
        raise CostModelError("a metric cannot rank NaN")
