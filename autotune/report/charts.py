"""Geometry of the report's charts: numbers in, places on a drawing out. The page draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from values to places between `begin` and `end`.

    Attributes:
        low, high: the values there.
        log: whether equal factors are equal lengths.
    """

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value is, rounded to what a drawing needs; values beyond the ends are put there."""
        low, high, value = (math.log(max(v, 1e-30)) if self.log else v for v in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.0
        return round(self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin), 2)

    def ticks(self) -> list[tuple[float, float]]:
        """(value, place) of round values, few enough to be read: powers of ten, or 1, 2 or 5 times one."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [(10.0**n, self.place(10.0**n)) for n in range(first, last + 1)]
        step = _round_step((self.high - self.low) / 4)
        count = math.floor(self.high / step + 1e-9)
        return [(n * step, self.place(n * step)) for n in range(math.ceil(self.low / step - 1e-9), count + 1)]


def spanning(values: Sequence[float], begin: float, end: float, *, log: bool = False) -> Axis:
    """The axis of some values: from 0, or with a factor of room on both sides of a logarithmic one."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if log:
        low, high = min(known, default=1.0), max(known, default=10.0)
        return Axis(low / 1.5, high * 1.5, begin, end, log=True)
    return Axis(0.0, max(known, default=1.0) or 1.0, begin, end)


def stairs(steps: Sequence[tuple[int, float]], last: int, x: Axis, y: Axis) -> str:
    """Points of a line that falls at each step and stays until the last trial."""
    points: list[str] = []
    for number, (trial, value) in enumerate(steps):
        until = steps[number + 1][0] if number + 1 < len(steps) else last
        points += [f"{x.place(trial)},{y.place(value)}", f"{x.place(until)},{y.place(value)}"]
    return " ".join(points)


def apart(places: Sequence[float], widths: Sequence[float], begin: float, end: float) -> list[float]:
    """Middles of labels as near to their places, which ascend, as they may be: none over another, none beyond the ends
    where there is room for all."""
    middles: list[float] = []
    edge = begin
    for place, width in zip(places, widths):
        middles.append(max(place, edge + width / 2))
        edge = middles[-1] + width / 2
    edge = end
    for n in reversed(range(len(middles))):
        middles[n] = round(min(middles[n], edge - widths[n] / 2), 2)
        edge = middles[n] - widths[n] / 2
    return middles


def _round_step(rough: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is no less."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
