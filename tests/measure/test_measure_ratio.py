"""Intervals of speed-ups: they hold the truth as often as they say, whatever the neighbours do."""

from __future__ import annotations

import random

import pytest

from autotune.measure.ratio import CONFIDENCE, Ratio


def test_the_interval_is_between_ordered_ratios() -> None:
    ratio = Ratio.of([1.0] * 8, [1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8])
    assert ratio.median == pytest.approx(1.45)
    assert ratio.interval == (1.1, 1.8)
    assert (ratio.rounds, ratio.faster, ratio.slower) == (8, True, False)
    back = Ratio.of([1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8], [1.0] * 8)
    assert back.slower and not back.faster


@pytest.mark.parametrize("count", range(1, 8))
def test_few_rounds_show_nothing(count: int) -> None:
    ratio = Ratio.of([1.0] * count, [2.0] * count)
    assert ratio.interval is None
    assert not ratio.faster and not ratio.slower


def test_more_rounds_leave_more_out() -> None:
    ratios = [1 + n / 100 for n in range(30)]
    assert Ratio.of([1.0] * 30, ratios).interval == (ratios[7], ratios[-8])


def test_the_ratio_of_the_medians_may_lie_outside() -> None:
    """As in "tuned 63.0 ms, untuned 81.5 ms", whose rounds had the ratio 1.04."""
    ours = [60.0, 61.0, 62.0, 63.0, 80.0, 81.0, 82.0]
    ratio = Ratio.of(ours, [own * 1.04 for own in ours])
    assert ratio.median == pytest.approx(1.04)


@pytest.mark.parametrize("disturb", [0.0, 0.3, 0.6])
def test_equal_programs_are_told_apart_no_oftener_than_promised(disturb: float) -> None:
    rng = random.Random(1)

    def sample() -> float:
        return rng.gauss(1.0, 0.02) * (rng.uniform(1.5, 4.0) if rng.random() < disturb else 1.0)

    runs = 1000
    wrong = 0
    for _ in range(runs):
        ratio = Ratio.of([sample() for _ in range(30)], [sample() for _ in range(30)])
        wrong += ratio.faster or ratio.slower
    assert wrong / runs <= 2 * (1 - CONFIDENCE)


def test_a_real_difference_is_seen_through_noise_that_both_feel() -> None:
    rng = random.Random(2)
    load = [rng.choice([1.0, 1.0, 3.0]) for _ in range(30)]
    ours = [rng.gauss(1.0, 0.02) * busy for busy in load]
    peer = [1.1 * rng.gauss(1.0, 0.02) * busy for busy in load]
    assert Ratio.of(ours, peer).faster
