"""Calibration: from a model's scores, whose order alone means something, to seconds that people can hold it to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.errors import CostModelError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """A falling curve through what was measured: the better the score, the fewer the seconds.

    Attributes:
        scores: ascending. `log_seconds`: at these scores.
    """

    scores: Array
    log_seconds: Array

    @staticmethod
    def of(scores: Array, seconds: Array) -> Calibration:
        """The isotonic regression (pool adjacent violators) of the logarithms; failed candidates are left out.

        Args:
            scores: of measured candidates of one task, higher is faster.
            seconds: their times; infinity for those that failed.
        """
        worked = np.isfinite(seconds)
        if not worked.any():
            raise CostModelError("there is no time to calibrate by: every candidate failed")
        order = np.argsort(scores[worked], kind="stable")
        pools: list[tuple[float, int]] = []  # mean and number, falling
        for value in np.log(seconds[worked][order]):
            mean, count = float(value), 1
            while pools and pools[-1][0] < mean:
                before, many = pools.pop()
                mean, count = (before * many + mean * count) / (many + count), many + count
            pools.append((mean, count))
        fitted = np.repeat([mean for mean, _ in pools], [count for _, count in pools])
        return Calibration(scores[worked][order], fitted)

    def seconds(self, scores: Array) -> Array:
        """What scores stand for; beyond the best one measured, its time: there is no telling how much better."""
        return np.exp(np.interp(scores, self.scores, self.log_seconds))
