"""Pace: how fast a search gains, and what the time that is left may bring."""

from __future__ import annotations

import math
from bisect import bisect_right


class Pace:
    """Seconds of a model's kernels over the time of a search.

    A search gains about as much each time that its effort doubles: what the last doubling of the time gained, times
    the doublings that are left, is what may still be gained.
    """

    def __init__(self) -> None:
        self._times: list[float] = []
        self._seconds: list[float] = []

    def add(self, elapsed: float, seconds: float) -> None:
        """The kernels take `seconds` together, `elapsed` seconds after the start; in the order of time."""
        self._times.append(elapsed)
        self._seconds.append(seconds)

    def expected_gain(self, left: float) -> float | None:
        """Seconds of the kernels that so many more seconds of search may save; None before the time has doubled."""
        if not self._times or self._times[-1] <= 0.0:
            return None
        now = self._times[-1]
        half = bisect_right(self._times, now / 2) - 1
        if half < 0:
            return None
        return max(0.0, self._seconds[half] - self._seconds[-1]) * math.log2((now + left) / now)
