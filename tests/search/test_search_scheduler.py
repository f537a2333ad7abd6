from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from autotune.search.scheduler import TaskScheduler, expected_gain, trial_seconds
from autotune.search.strategies.random_search import RandomSearch
from autotune.search.task import TaskSearch
from autotune.search.trial import Trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import ConfigSpace
from tests.search.simulated import make_task


def make_search(space: ConfigSpace, *, channels: int = 8, weight: float = 1.0, ideal: float = 0.0) -> TaskSearch:
    task = make_task(space, channels, weight, ideal)
    return TaskSearch(task, RandomSearch(task.space, random.Random(0)))


def serve(search: TaskSearch, seconds: float | None, spent: float | None = None) -> None:
    config = search.next_config()
    assert config is not None
    search.observe(Trial(config, seconds, None if seconds is not None else "crash", spent=spent))


def test_every_task_gets_its_default_then_a_warm_up_before_gains_count(space: ConfigSpace) -> None:
    searches = [make_search(space, channels=8 * n, weight=float(n)) for n in (1, 2, 3)]
    scheduler = TaskScheduler(searches, warmup=4)
    served = []
    for _ in range(12):
        search = scheduler.next()
        assert search is not None
        served.append(search)
        serve(search, 1.0)
    assert served[:3] == searches[::-1]
    assert set(Counter(served).values()) == {4}


def test_a_warm_up_tries_what_is_proposed_for_one_task_before_another_is_thought_about(space: ConfigSpace) -> None:
    searches = [make_search(space, channels=8 * n, weight=float(n)) for n in (1, 2)]
    scheduler = TaskScheduler(searches, warmup=17)
    served: list[int] = []
    while (search := scheduler.next()) is not None and len(served) < 18:
        served.append(searches.index(search))
        serve(search, 1.0)
    first = [place for place, _ in itertools.groupby(served)]
    assert served[:2] == [1, 0] and first == [1, 0, 1, 0]


def test_pending_trials_count_so_that_one_task_is_not_flooded(space: ConfigSpace) -> None:
    searches = [make_search(space, channels=8 * n) for n in (1, 2)]
    scheduler = TaskScheduler(searches, warmup=2)
    for _ in range(4):
        search = scheduler.next()
        assert search is not None
        assert search.next_config() is not None
    assert [search.started for search in searches] == [2, 2]


def test_gain_grows_with_weight_time_and_recent_success_and_falls_with_trials(space: ConfigSpace) -> None:
    def gain(weight: float = 1.0, seconds: float = 1.0, trials: int = 20, ideal: float = 0.0) -> float:
        search = make_search(space, weight=weight, ideal=ideal)
        for _ in range(trials):
            serve(search, seconds)
        return expected_gain(search)

    assert gain(weight=3.0) == pytest.approx(3 * gain())
    assert gain(seconds=3.0) == pytest.approx(3 * gain())
    assert gain(trials=40) == pytest.approx(gain() / 2)
    assert gain(ideal=0.9) == pytest.approx(gain() / 10)
    improving = make_search(space)
    for number in range(20):
        serve(improving, 2.0 - 0.05 * number)
    assert expected_gain(improving) > gain(seconds=1.05)


def test_a_task_where_nothing_works_waits_for_the_others(space: ConfigSpace) -> None:
    broken, working = make_search(space, weight=100.0), make_search(space, channels=16)
    for _ in range(3):
        serve(broken, None)
        serve(working, 1.0)
    assert TaskScheduler([broken, working], warmup=3).next() is working


def test_stopped_tasks_get_nothing(space: ConfigSpace) -> None:
    first, second = make_search(space), make_search(space, channels=16)
    scheduler = TaskScheduler([first, second])
    first.stopped = "enough"
    assert {scheduler.next() for _ in range(3)} == {second}
    second.stopped = "enough"
    assert scheduler.next() is None


def test_a_search_rebuilt_from_its_trials_is_served_as_before(space: ConfigSpace) -> None:
    rng = random.Random(5)
    live = [make_search(space, channels=8 * n, weight=float(n)) for n in (1, 2)]
    for _ in range(40):
        serve(live[rng.randrange(2)], rng.uniform(1, 2))
    rebuilt = [make_search(space, channels=8 * n, weight=float(n)) for n in (1, 2)]
    for old, new in zip(live, rebuilt, strict=True):
        for trial in old.trials.values():
            new.observe(trial)
    assert [expected_gain(search) for search in rebuilt] == [expected_gain(search) for search in live]
    assert [search.since_gain for search in rebuilt] == [search.since_gain for search in live]


def test_small_improvements_are_no_gain(space: ConfigSpace) -> None:
    search = make_search(space)
    for seconds in (1.0, 0.999, 0.998, 0.997):
        serve(search, seconds)
    assert search.since_gain == 3
    assert search.best is not None
    assert search.best.cost == 0.997
    serve(search, 0.5)
    assert search.since_gain == 0


def test_seeds_come_after_the_default_and_nothing_is_started_twice(space: ConfigSpace) -> None:
    task = make_task(space)
    rng = random.Random(1)
    seeds = [task.space.sample(rng) for _ in range(2)]
    search = TaskSearch(task, RandomSearch(task.space, rng), seeds=[*seeds, task.space.default()])
    first = [search.next_config() for _ in range(30)]
    assert first[:3] == [task.space.default(), *seeds]
    assert len(set(first)) == 30
    assert all(isinstance(config, Config) for config in first)


def share_out(searches: list[TaskSearch], prices: list[float], seconds: float) -> list[float]:
    """Serves the tasks for a while, as a tuner would; the seconds that each was given. None ever improves."""
    scheduler = TaskScheduler(searches, warmup=2)
    given = [0.0] * len(searches)
    while sum(given) < seconds:
        search = scheduler.next()
        assert search is not None
        place = searches.index(search)
        serve(search, 1.0, prices[place])
        given[place] += prices[place]
    return given


def test_gains_are_weighed_against_what_a_trial_costs(space: ConfigSpace) -> None:
    """Equal tasks get equal hopes: a task whose trials cost nine times as much gets fewer trials, and more seconds."""
    cheap, dear = make_search(space, channels=8), make_search(space, channels=16)
    given = share_out([cheap, dear], [0.1, 0.9], 40.0)
    assert len(cheap.trials) == pytest.approx(9 * len(dear.trials), rel=0.25)
    assert given[0] == pytest.approx(given[1], rel=0.25)


def test_a_simulated_model_gets_its_time_where_there_is_something_to_gain(space: ConfigSpace) -> None:
    heavy = make_search(space, channels=8, weight=4.0)
    light = make_search(space, channels=16)
    done = make_search(space, channels=24, weight=50.0, ideal=1.0)  # nothing can be faster than it is
    given = share_out([heavy, light, done], [0.2, 0.2, 0.2], 60.0)
    assert given[0] == pytest.approx(4 * given[1], rel=0.25)
    assert len(done.trials) == 2


def test_what_a_trial_costs_is_guessed_until_it_is_known(space: ConfigSpace) -> None:
    """A task resumed from the database has no costs: it is taken for as dear as the others."""
    known, resumed = make_search(space, channels=8), make_search(space, channels=16)
    for _ in range(4):
        serve(known, 1.0, 2.0)
        serve(resumed, 1.0)
    assert (known.trial_seconds, resumed.trial_seconds) == (2.0, None)
    assert trial_seconds(resumed, 2.0) == 2.0
    assert {TaskScheduler([known, resumed], warmup=2).next() for _ in range(3)} == {known}
    serve(resumed, 1.0, 0.0)
    assert trial_seconds(resumed, 2.0) > 0


def test_a_warm_up_ends_when_there_is_no_time_for_it(space: ConfigSpace) -> None:
    heavy, light = make_search(space, channels=8, weight=9.0), make_search(space, channels=16)
    scheduler = TaskScheduler([heavy, light], warmup=16)
    for _ in range(8):
        search = scheduler.next(warm=False)
        assert search is not None
        serve(search, 1.0)
    assert (len(heavy.trials), len(light.trials)) == (7, 1)
