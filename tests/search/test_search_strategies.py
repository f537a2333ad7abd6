"""The contract of every strategy, and whether guidance is worth its cost."""

from __future__ import annotations

import random
from statistics import mean

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.cost_model.features import Features
from autotune.cost_model.model import RandomModel
from autotune.cost_model.xgboost_model import XGBoostModel
from autotune.errors import ConfigError, MeasureError
from autotune.search.simulation import Simulation, simulate
from autotune.search.strategies import STRATEGIES, make_strategy
from autotune.search.strategies.evolution import Evolution, EvolutionOptions
from autotune.search.strategy import Strategy
from autotune.search.trial import Trial, best_trial
from autotune.search_spaces.config import Config
from autotune.search_spaces.knobs import Choice
from autotune.search_spaces.space import ConfigSpace, Constraint, Member, TaskSpace


def make(name: str, space: ConfigSpace | TaskSpace, seed: int = 0) -> Strategy:
    return make_strategy(name, space, XGBoostModel(rounds=10), random.Random(seed))


@pytest.fixture
def task(space: ConfigSpace) -> TaskSpace:
    """Two templates, one of them tiny."""
    small = ConfigSpace((Choice("a", (1, 2, 3)),))
    return TaskSpace({"tiled": Member(space, space.default()), "plain": Member(small, Config.of(a=2))})


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_defaults_come_first_and_nothing_comes_twice(name: str, task: TaskSpace) -> None:
    strategy = make(name, task)
    proposed: list[Config] = []
    for batch in (1, 3, 8, 30, 1):
        configs = strategy.propose(batch)
        assert len(configs) == batch
        proposed += configs
        for config in configs:
            task.validate(config)
            strategy.observe(Trial(config, seconds=1.0 + len(proposed) % 7))
    assert proposed[:2] == task.defaults()
    assert len(set(proposed)) == len(proposed)


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_another_run_measured_is_not_proposed_again(name: str, task: TaskSpace) -> None:
    strategy = make(name, task)
    measured = {task.default(), *(task.sample(random.Random(seed)) for seed in range(40))}
    for config in measured:
        strategy.observe(Trial(config, seconds=1.0))
    assert not measured & set(strategy.propose(60))


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_small_space_is_exhausted_exactly(name: str) -> None:
    rule = Constraint("not both", lambda config: config["a"] != config["b"], "a and b must differ")
    small = ConfigSpace((Choice("b", (2, 1, 3, 4, 5, 6)), Choice("a", (1, 2, 3, 4, 5))), (rule,))
    strategy = make(name, small)
    proposed = []
    while configs := strategy.propose(4):
        proposed += configs
        for config in configs:
            strategy.observe(Trial(config, seconds=float(len(proposed))))
    assert len(proposed) == len(set(proposed)) == small.count_valid()
    assert strategy.propose(1) == []


@pytest.mark.parametrize("name", STRATEGIES)
def test_proposing_without_results_and_with_only_failures_works(name: str, space: ConfigSpace) -> None:
    strategy = make(name, space)
    silent = [config for _ in range(8) for config in strategy.propose(8)]
    assert len(set(silent)) == 64
    for config in silent:
        strategy.observe(Trial(config, failure="crash"))
    assert len(strategy.propose(8)) == 8


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_same_seed_repeats_the_search(name: str, space: ConfigSpace, simulation: Simulation) -> None:
    first, second = (simulate(make(name, space, seed=3), simulation, 40) for _ in range(2))
    assert first == second


def test_guided_search_beats_random_at_equal_trials(space: ConfigSpace, simulation: Simulation) -> None:
    def reached(name: str) -> list[float]:
        runs = []
        for seed in range(4):
            strategy = make_strategy(name, space, XGBoostModel(seed=seed), random.Random(seed))
            best = best_trial(simulate(strategy, simulation, 64))
            assert best is not None
            runs.append(simulation.best / best.cost)
        return runs

    blind, guided = reached("random"), reached("evolution")
    assert mean(guided) > 0.96
    assert mean(guided) > mean(blind) + 0.04
    assert min(guided) > min(blind)


def test_the_gain_comes_from_the_model(space: ConfigSpace, simulation: Simulation) -> None:
    def reached(model: XGBoostModel | RandomModel) -> float:
        best = best_trial(simulate(Evolution(space, model, random.Random(1)), simulation, 64))
        assert best is not None
        return simulation.best / best.cost

    assert reached(XGBoostModel()) > reached(RandomModel(random.Random(1))) + 0.03


class CountingModel(RandomModel):
    def __init__(self) -> None:
        super().__init__(random.Random(0))
        self.trained_on: list[int] = []

    def fit(self, features: Features, seconds: NDArray[np.float64], groups: NDArray[np.int64]) -> None:
        self.trained_on.append(len(seconds))


def test_the_model_is_trained_after_warmup_and_then_when_data_grew_by_a_fifth(
    space: ConfigSpace, simulation: Simulation
) -> None:
    model = CountingModel()
    simulate(Evolution(space, model, random.Random(0), EvolutionOptions(warmup=10)), simulation, 60, batch=1)
    assert model.trained_on[0] == 10
    assert all(
        later == int(np.ceil(earlier * 1.2 - 1e-9))
        for earlier, later in zip(model.trained_on, model.trained_on[1:], strict=False)
    )


def test_epsilon_one_is_random_search(space: ConfigSpace, simulation: Simulation) -> None:
    model = CountingModel()
    options = EvolutionOptions(warmup=4, epsilon=1.0, generations=1)
    trials = simulate(Evolution(space, model, random.Random(0), options), simulation, 200)
    blind = simulate(make("random", space), simulation, 200)
    assert abs(mean(t.cost for t in trials if t.seconds) / mean(t.cost for t in blind if t.seconds) - 1) < 0.2


def test_an_unknown_strategy_and_an_unrecorded_config_are_refused(space: ConfigSpace) -> None:
    with pytest.raises(ConfigError, match="unknown search strategy 'evolutoin', did you mean 'evolution'"):
        make("evolutoin", space)
    with pytest.raises(MeasureError, match=r"no result for .* among 0; record the whole space"):
        Simulation({}).run(space.default())


def test_a_trial_is_a_time_or_a_failure() -> None:
    config = Config.of(a=1)
    for seconds, failure in ((None, None), (1.0, "crash")):
        with pytest.raises(MeasureError, match="either seconds or a failure"):
            Trial(config, seconds, failure)
    failed, slow, fast = Trial(config, failure="crash"), Trial(config, 2.0), Trial(config, 1.0)
    assert best_trial([failed, slow, fast]) == fast
    assert best_trial([failed]) is None
    assert best_trial([]) is None
