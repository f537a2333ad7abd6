from __future__ import annotations

import pytest

from autotune.errors import ConfigError
from autotune.search import DEFAULT_EFFORT, DEFAULT_STRATEGY, EFFORTS, Budget, TuneOptions, effort_of


def test_more_effort_is_more_of_everything() -> None:
    quick, usual, thorough = EFFORTS.values()
    for less, more in ((quick, usual), (usual, thorough)):
        assert (Budget.parse(less.budget).seconds or 0) < (Budget.parse(more.budget).seconds or 0)
        assert less.warmup < more.warmup
        assert less.finalists < more.finalists
        assert less.batch <= more.batch


def test_the_default_effort_is_what_tuning_does_when_nobody_says() -> None:
    assert TuneOptions.of(effort_of(DEFAULT_EFFORT), DEFAULT_STRATEGY, 0) == TuneOptions()


def test_options_follow_the_effort() -> None:
    options = TuneOptions.of(EFFORTS["quick"], "random", 7)
    assert (options.strategy, options.seed, options.patience) == ("random", 7, EFFORTS["quick"].patience)
    assert options.same_failures == TuneOptions().same_failures


def test_another_word_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="unknown effort 'thorugh', did you mean 'thorough'\\?; known: quick, default"
    ):
        effort_of("thorugh")
