"""How the time of a tuning call is shared."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autotune.api.allowance import LEAST_SECONDS, MODEL_ROUNDS, VERDICT_SHARE, Allowance
from autotune.search import Budget

SMALL, LARGE = 10**6, 8 * 10**9


@pytest.fixture(autouse=True, scope="module")
def hasty() -> None:
    """Here, rounds are what users get."""


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_a_time_nothing_is_limited() -> None:
    free = Allowance(None, 100.0, 0.0)
    assert free.left() is None
    assert free.first_search(Budget(trials=9), [LARGE]) == Budget(trials=9)
    assert free.follow_up(9, [LARGE]) == Budget(trials=9)
    assert free.rounds(LARGE) == MODEL_ROUNDS[1]


@pytest.mark.parametrize("seconds", [20.0, 90.0, 600.0])
@pytest.mark.parametrize("programs", [[SMALL], [LARGE], [SMALL] * 5])
def test_searches_and_verdict_fit_into_the_time(seconds: float, programs: list[int]) -> None:
    clock = Clock()
    allowance = Allowance(seconds, 100.0, 90.0, clock)  # ten seconds are gone
    assert allowance.left() == seconds - 10
    first = allowance.first_search(Budget(seconds=seconds, trials=50), programs)
    assert first.trials == 50 and first.seconds is not None
    assert first.seconds >= min(LEAST_SECONDS, seconds - 10) and first.seconds + 10 < seconds
    clock.now += first.seconds
    later = allowance.follow_up(8, programs)
    if later is not None:
        assert later.trials == 8 and later.seconds is not None and later.seconds < seconds * (1 - VERDICT_SHARE / 2)
        clock.now += later.seconds
    left = allowance.left()
    assert left is not None and 0 < left <= max(VERDICT_SHARE * seconds, LEAST_SECONDS) + 0.11 * seconds


def test_a_verdict_has_fewer_rounds_when_time_is_short_but_always_some() -> None:
    clock = Clock()
    allowance = Allowance(60.0, 100.0, 100.0, clock)
    assert allowance.rounds(SMALL) == MODEL_ROUNDS[1]
    clock.now = 155.0
    assert MODEL_ROUNDS[0] <= allowance.rounds(LARGE) < MODEL_ROUNDS[1]
    clock.now = 200.0
    assert allowance.rounds(LARGE) == MODEL_ROUNDS[0]
    assert allowance.follow_up(8, [SMALL]) is None


def test_a_time_is_over_when_nothing_is_left() -> None:
    clock = Clock()
    allowance = Allowance(10.0, 100.0, clock.now, clock)
    assert not allowance.over()
    clock.now += 10
    assert allowance.over()
    assert not Allowance(None, 100.0, 0.0).over()
