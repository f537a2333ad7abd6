"""Allowance: how the time of a tuning call is shared among search, kernels in new layouts, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autotune.search import Budget

FOLLOW_UP_SHARE = 0.05
VERDICT_SHARE = 0.25
"""Of the whole, what is kept at most for kernels in new layouts, and for the verdict on the model."""
LEAST_SECONDS = 2.0
"""A search gets no less, and a further one is not begun for less."""
MODEL_ROUNDS = (10, 30)
"""Of the verdict: at least, for which time is kept, and at most, where there is more."""
ROUND_SECONDS = 0.1
"""Of timing two small programs in turn, once."""
COMPILE_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Allowance:
    """
    Attributes:
        seconds: of the whole call; None for no limit.
        peak_gflops: fp32 peak, which tells how long a program takes before it is compiled.
        started: when the call began, in seconds of `clock`.
    """

    seconds: float | None
    peak_gflops: float
    started: float
    clock: Callable[[], float] = time.monotonic

    def left(self) -> float | None:
        """Seconds; None for no limit."""
        return None if self.seconds is None else self.started + self.seconds - self.clock()

    def over(self) -> bool:
        """Whether there is no time left."""
        left = self.left()
        return left is not None and left <= 0

    def search(self, budget: Budget, kept: float = 0.0) -> Budget:
        """The budget of a search that ends so many seconds before the call."""
        left = self.left()
        return budget if left is None else replace(budget, seconds=max(LEAST_SECONDS, left - kept))

    def first_search(self, budget: Budget, programs: Sequence[int]) -> Budget:
        """The budget of the main search, for programs of so many operations each."""
        return self.search(budget, FOLLOW_UP_SHARE * (self.seconds or 0.0) + self._verdicts(programs))

    def follow_up(self, trials: int, programs: Sequence[int]) -> Budget | None:
        """The budget of a search for so many trials; None when there is no time for it."""
        budget = self.search(Budget(trials=trials), self._verdicts(programs))
        return None if budget.seconds is not None and budget.seconds <= LEAST_SECONDS else budget

    def rounds(self, flops: int, more: bool = False) -> int:
        """How often a program of so many operations, tuned and untuned, is timed; 0 where there is no time for more."""
        least, most = MODEL_ROUNDS
        left = self.left()
        if left is None:
            return most
        fit = min(most, int(left / self._round(flops)))
        return max(least, fit) if not more or fit >= least else 0

    def _verdicts(self, programs: Sequence[int]) -> float:
        """Seconds to keep for them."""
        wanted = sum(COMPILE_SECONDS + MODEL_ROUNDS[0] * self._round(flops) for flops in programs)
        return min(wanted, VERDICT_SHARE * (self.seconds or 0.0))

    def _round(self, flops: int) -> float:
        """Seconds of one round: each of the two is called twice, at most of the peak."""
        return ROUND_SECONDS + 4 * 1.3 * flops / (self.peak_gflops * 1e9)
