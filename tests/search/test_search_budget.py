from __future__ import annotations

import pytest

from autotune.errors import ConfigError
from autotune.search.budget import Budget


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("5m", Budget(seconds=300)),
        ("90s", Budget(seconds=90)),
        (" 1H30m ", Budget(seconds=5400)),
        ("0.5m", Budget(seconds=30)),
        ("200 trials", Budget(trials=200)),
        ("1 trial", Budget(trials=1)),
    ],
)
def test_reads_times_and_trials(text: str, budget: Budget) -> None:
    assert Budget.parse(text) == budget


@pytest.mark.parametrize(
    "text", ["", "m", "-5m", "0", "0s", "5 minutes", "5m3", "1e3 trials", "5d", "trials", "5", "0.5"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Budget.parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["5", " 0.5 ", "90"])
def test_a_number_without_a_unit_is_asked_for_one(text: str) -> None:
    number = text.strip()
    with pytest.raises(ConfigError, match=f"write {number}s, {number}m or {number} trials"):
        Budget.parse(text)


def test_the_first_limit_reached_ends_it() -> None:
    both = Budget(trials=10, seconds=60)
    assert not both.is_spent(9, 59.9)
    assert both.is_spent(10, 0)
    assert both.is_spent(0, 60)
    assert str(both) == "10 trials or 60 s"
    with pytest.raises(ConfigError, match="needs a number of trials or a time"):
        Budget()


def test_eta_follows_the_pace_of_this_run() -> None:
    assert Budget(trials=100).eta(50, 20, 10.0) == 25.0
    assert Budget(trials=100).eta(50, 0, 0.0) is None
    assert Budget(seconds=60).eta(50, 20, 10.0) == 50.0
    assert Budget(trials=100, seconds=30).eta(50, 20, 10.0) == 20.0
    assert Budget(trials=100).eta(120, 20, 10.0) == 0.0


def test_the_share_that_is_spent_is_that_of_the_nearer_limit() -> None:
    budget = Budget(trials=100, seconds=60.0)
    assert budget.spent(50, 15.0) == 0.5
    assert budget.spent(10, 45.0) == 0.75
    assert Budget(trials=100).spent(25, 1e9) == 0.25
