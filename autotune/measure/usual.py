"""What a machine usually gives: the yardstick that single looks at it are held to.

Not the best that was ever seen: one lucky look, or one misread clock, would put it where the machine hardly ever is.
Beside a neighbour who never leaves, no moment would be quiet again, and every trial would wait for one in vain.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import final

SHARE = 0.25
"""Of the looks, that are as good or better: of a trial's rounds so many have to be quiet (`TimingPolicy`)."""
SELDOM = 0.1
"""The same for what need not be found in every trial."""
_REMEMBERED = 1 << 15  # looks: more than a minute of nothing but timing


@final
class Usual:
    """The upper quartile, or another share, of the looks that are remembered, or `least` where that is more."""

    def __init__(self, least: float = 0.0, share: float = SHARE) -> None:
        self._least, self._share = least, share
        self._looks: deque[float] = deque()
        self._ordered: list[float] = []

    def add(self, value: float) -> None:
        if len(self._looks) == _REMEMBERED:
            del self._ordered[bisect_left(self._ordered, self._looks.popleft())]
        self._looks.append(value)
        insort(self._ordered, value)

    @property
    def value(self) -> float:
        """0 or `least` before the first look."""
        if not self._ordered:
            return self._least
        return max(self._least, self._ordered[int((1 - self._share) * len(self._ordered))])
