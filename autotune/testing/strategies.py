"""The contract of a search strategy (`autotune.search.strategy.Strategy`)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import groupby

from autotune.cost_model.adapted import AdaptedModel
from autotune.cost_model.model import CostModel
from autotune.search.strategy import Strategy
from autotune.search.trial import Trial
from autotune.search_spaces import Choice, Config, ConfigSpace
from autotune.search_spaces.space.space import Constraint, Member, Space, TaskSpace
from autotune.testing.says import says

MakeStrategy = Callable[[Space, CostModel, random.Random], Strategy]


def check_strategy(make: MakeStrategy, *, seed: int = 0) -> None:
    """Check a strategy on small spaces with made-up times: nothing is built or run.

    Args:
        make: one strategy for a space, with a cost model that it may use and its only source of chance; what
            `autotune.search.STRATEGIES` holds.
        seed: of the made-up times and of the strategy.

    Raises:
        AssertionError: it does not keep the contract.
    """
    checks = _Checks(make, seed)
    for check in (
        checks.defaults_first_and_nothing_twice,
        checks.nothing_that_another_run_measured,
        checks.a_small_space_to_its_end,
        checks.a_space_where_everything_fails,
        checks.results_late_or_never,
        checks.a_second_result,
        checks.no_more_than_wanted,
        checks.the_same_seed,
    ):
        with says(check.__name__.replace("_", " ")):
            check()


class _Checks:
    def __init__(self, make: MakeStrategy, seed: int) -> None:
        self._make, self._seed = make, seed

    def strategy(self, space: Space) -> Strategy:
        return self._make(space, AdaptedModel(None, rounds=10), random.Random(self._seed))

    def defaults_first_and_nothing_twice(self) -> None:
        """And all of them are of the space, as many as were asked for."""
        task = _two_templates()
        strategy, proposed = self.strategy(task), list[Config]()
        for batch in (1, 3, 8, 30, 1):
            configs = strategy.propose(batch)
            assert len(configs) == batch, f"{len(configs)} of {batch} configs, and the space has {task.size}"
            proposed += configs
            for config in configs:
                task.validate(config)
                strategy.observe(_trial(config))
        assert proposed[:2] == task.defaults(), "the defaults of its templates do not come first"
        _once(proposed)

    def nothing_that_another_run_measured(self) -> None:
        task, rng = _two_templates(), random.Random(self._seed)
        strategy = self.strategy(task)
        measured = {task.default(), *(task.sample(rng) for _ in range(40))}
        for config in measured:
            strategy.observe(_trial(config))
        again = measured.intersection(strategy.propose(60))
        assert not again, f"{len(again)} configs come again that have a result"

    def a_small_space_to_its_end(self) -> None:
        rule = Constraint("not both", lambda config: config["a"] != config["b"], "a and b must differ")
        space = ConfigSpace((Choice("b", (2, 1, 3, 4, 5, 6)), Choice("a", (1, 2, 3, 4, 5))), (rule,))
        for whole in (space, ConfigSpace((Choice("a", (1,)),))):
            strategy = self.strategy(whole)
            proposed = [config for configs in _rounds(strategy, 4, _trial) for config in configs]
            _once(proposed)
            assert len(proposed) == whole.count_valid(), f"{len(proposed)} of {whole.count_valid()} configs"
            assert strategy.propose(1) == [], "there is more than all"

    def a_space_where_everything_fails(self) -> None:
        strategy = self.strategy(ConfigSpace((Choice("a", tuple(range(40))),)))
        rounds = _rounds(strategy, 7, lambda config: Trial(config, failure="crash"))
        failed = [config for configs in rounds for config in configs]
        _once(failed)
        assert len(failed) == 40, f"{len(failed)} of 40 configs"

    def results_late_or_never(self) -> None:
        """In any order, some of them lost."""
        task, rng = _two_templates(), random.Random(self._seed)
        strategy, proposed, waiting = self.strategy(task), list[Config](), list[Config]()
        for _ in range(15):
            configs = strategy.propose(5)
            assert len(configs) == 5, "it waits for results"
            proposed += configs
            waiting += configs
            rng.shuffle(waiting)
            for config in [waiting.pop() for _ in range(len(waiting) // 2)]:
                if rng.random() < 0.8:
                    strategy.observe(_trial(config))
        _once(proposed)

    def a_second_result(self) -> None:
        """As finalists get, which are timed again."""
        strategy = self.strategy(_tiles())
        first = strategy.propose(30)
        for factor in (2.0, 1.0):
            for config in first:
                strategy.observe(Trial(config, seconds=factor * _seconds(config)))
        assert not set(first).intersection(strategy.propose(30)), "a config comes again"

    def no_more_than_wanted(self) -> None:
        space = _tiles()
        strategy = self.strategy(space)
        assert strategy.propose(0) == [], "something comes when nothing is wanted"
        assert strategy.propose(1) == [space.default()], "the default does not come first"

    def the_same_seed(self) -> None:
        one, two = (list(_rounds(self.strategy(_tiles()), 8, _trial, most=5)) for _ in range(2))
        assert one == two, "it is not repeated: only the given source of chance may be used"


def _tiles() -> ConfigSpace:
    """Some hundred configs of a kernel that has registers for so many accumulators."""
    sizes = (1, 2, 4, 7, 8, 14, 28, 56)
    rule = Constraint("registers", lambda config: config.get_int("w") * config.get_int("h") <= 64, "at most 64")
    knobs = (Choice("w", (7, *(s for s in sizes if s != 7))), Choice("h", sizes), Choice("order", ("b", "a", "c")))
    return ConfigSpace(knobs, (rule,))


def _two_templates() -> TaskSpace:
    """One of them tiny."""
    large, small = _tiles(), ConfigSpace((Choice("a", (1, 2, 3)),))
    return TaskSpace({"tiled": Member(large, large.default()), "plain": Member(small, Config.of(a=2))})


def _seconds(config: Config) -> float:
    """A made-up time: latency in small tiles, spills in large ones."""
    if "w" not in config:
        return 2e-3
    tiles = config.get_int("w") * config.get_int("h")
    return 1e-3 * {"a": 1.0, "b": 1.15, "c": 1.4}[config.get_str("order")] * (1 + abs(math.log2(tiles) - 4) / 4)


def _trial(config: Config) -> Trial:
    return Trial(config, seconds=_seconds(config))


def _rounds(
    strategy: Strategy, batch: int, trial: Callable[[Config], Trial], most: int = 100
) -> Iterator[list[Config]]:
    """What it proposes until nothing is left, with a result for each."""
    for _ in range(most):
        configs = strategy.propose(batch)
        if not configs:
            return
        yield configs
        for config in configs:
            strategy.observe(trial(config))


def _once(configs: list[Config]) -> None:
    twice = [config for config, same in groupby(sorted(configs, key=lambda config: config.key)) if len(list(same)) > 1]
    assert not twice, f"{twice[0].to_json()} comes twice"
