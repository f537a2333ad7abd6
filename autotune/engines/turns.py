"""A turn: calls of an engine for a moment, each of them timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.engines.engine import Engine, Feeds


@dataclass(frozen=True, slots=True)
class Turn:
    """
    Attributes:
        calls: seconds of each call.
        rate: calls per second; of several streams, of all together.
    """

    calls: tuple[float, ...]
    rate: float


def take_turn(engine: Engine, feeds: Feeds, seconds: float) -> Turn:
    """Call an engine for so long, once at least."""
    calls: list[float] = []
    first = last = time.perf_counter()
    while not calls or last - first < seconds:
        engine.run(feeds)
        now = time.perf_counter()
        calls.append(now - last)
        last = now
    return Turn(tuple(calls), len(calls) / (last - first))


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds that half, 90 % and 99 % of the calls took at most, interpolated between calls where they are few."""

    p50: float
    p90: float
    p99: float

    @staticmethod
    def of(calls: Sequence[float]) -> Percentiles:
        return Percentiles(*map(float, np.percentile(calls, (50, 90, 99))))
