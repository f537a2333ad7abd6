"""One task's search: which of its trials counts as the best, while it runs and in the end."""

from __future__ import annotations

import random

from autotune.search.outcome import TaskOutcome
from autotune.search.strategies.random_search import RandomSearch
from autotune.search.task import TaskSearch
from autotune.search.trial import Trial
from autotune.search_spaces.space.space import ConfigSpace
from tests.search.simulated import make_task


def searching(space: ConfigSpace) -> TaskSearch:
    return TaskSearch(make_task(space), RandomSearch(space, random.Random(0)), batch=4)


def test_the_best_so_far_is_none_that_was_disturbed(space: ConfigSpace) -> None:
    search = searching(space)
    quiet, faster, fastest, *_ = space.enumerate()
    for trial, best in (
        (Trial(fastest, 0.1, disturbed=True), fastest),  # there is no other
        (Trial(quiet, 1.0), quiet),
        (Trial(fastest, 0.1, disturbed=True), quiet),
        (Trial(faster, 0.9), faster),
    ):
        search.observe(trial)
        assert search.best is not None and search.best.config == best


def test_what_was_timed_in_turn_is_the_best_in_the_end_unless_another_is_far_ahead(space: ConfigSpace) -> None:
    search = searching(space)
    default = space.default()
    compared, near, far, *_ = (config for config in space.enumerate() if config != default)
    for trial, best in (
        (Trial(near, 0.94), near),  # nothing was compared
        (Trial(default, 1.0, compared=True), near),
        (Trial(compared, 0.95, compared=True), compared),
        (Trial(far, 0.9), far),
    ):
        search.observe(trial)
        outcome = TaskOutcome.of(search, 0)
        assert outcome.best is not None and outcome.best.config == best


def test_a_default_that_is_faster_than_what_was_timed_in_turn_with_it_stays_the_best(space: ConfigSpace) -> None:
    search = searching(space)
    other = next(config for config in search.task.space.enumerate() if config != search.default)
    search.observe(Trial(search.default, 1.0, compared=True, disturbed=True))
    search.observe(Trial(other, 1.02, compared=True))
    outcome = TaskOutcome.of(search, 0)
    assert outcome.best is not None and outcome.best.config == search.default and outcome.speedup == 1.0


def test_a_task_is_contested_when_anything_seems_faster_than_its_default(space: ConfigSpace) -> None:
    search = searching(space)
    other, faster, *_ = (config for config in search.task.space.enumerate() if config != search.default)
    assert not search.contested
    for trial, contested in (
        (Trial(search.default, 1.0), False),
        (Trial(other, 1.1), False),
        (Trial(faster, 0.5, disturbed=True), True),
    ):
        search.observe(trial)
        assert search.contested == contested
