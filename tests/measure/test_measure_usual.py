"""What is usual of a machine: neither its best moment nor its worst."""

from __future__ import annotations

import pytest

from autotune.measure import usual
from autotune.measure.usual import Usual


def of(values: list[float], least: float = 0.0, share: float = usual.SHARE) -> float:
    found = Usual(least, share)
    for value in values:
        found.add(value)
    return found.value


def test_one_lucky_look_is_no_yardstick() -> None:
    assert of([2.9, 3.0, 2.8, 3.1, 2.9, 3.0, 2.9, 3.6]) == 3.1


@pytest.mark.parametrize(("quiet", "expected"), [(30, 3.4), (20, 2.5)])
def test_quiet_moments_count_where_a_trial_can_find_enough_of_them(quiet: int, expected: float) -> None:
    assert of([3.4] * quiet + [2.5] * (100 - quiet)) == expected


def test_what_is_seldom_counts_where_so_small_a_share_was_asked_for() -> None:
    assert of([3.4] * 15 + [2.5] * 85, share=usual.SELDOM) == 3.4
    assert of([3.4] * 8 + [2.5] * 92, share=usual.SELDOM) == 2.5


def test_what_a_core_should_do_counts_where_it_never_does() -> None:
    assert of([], 3.0) == 3.0
    assert of([1.0, 1.0], 3.0) == 3.0


def test_old_looks_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usual, "_REMEMBERED", 8)
    assert of([9.0] * 8 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]) == 7.0
