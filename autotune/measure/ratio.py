"""Ratio: how many times faster one thing is than another, with the interval that says how much of it is noise.

Both are timed in the same interleaved rounds: what slows the machine for a while slows both halves of a round's ratio.
The median of these ratios decides between close contenders where the ratio of two medians may not, and the interval of
that median is read off the ordered ratios themselves (the sign test, turned around): it supposes no distribution, so a
neighbour who doubles every third time widens it and does not move it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.99
"""How often an interval holds the true median ratio."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Above 1: we are faster.

    Attributes:
        median: of the rounds' ratios, which need not be the ratio of the two medians.
        interval: of the median; None when so few rounds tell nothing.
        rounds: how many.
    """

    median: float
    interval: tuple[float, float] | None
    rounds: int

    @staticmethod
    def of(ours: Sequence[float], peer: Sequence[float]) -> Ratio:
        """From the seconds of either in the same rounds."""
        ratios = sorted(theirs / own for own, theirs in zip(ours, peer, strict=True))
        place = _outermost(len(ratios))
        interval = None if place is None else (ratios[place], ratios[-1 - place])
        return Ratio(statistics.median(ratios), interval, len(ratios))

    @property
    def faster(self) -> bool:
        """Whether the rounds show that we are."""
        return self.interval is not None and self.interval[0] > 1

    @property
    def slower(self) -> bool:
        """Whether the rounds show that we are."""
        return self.interval is not None and self.interval[1] < 1


def _outermost(count: int) -> int | None:
    """How many ratios may be left out at either end, so that the median lies between the others often enough.

    It lies outside of them when at most so many of `count` fair coins show heads, or tails.
    """
    outside = 0.0
    place: int | None = None
    for heads in range(count // 2):
        outside += 2 * math.comb(count, heads) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        place = heads
    return place
