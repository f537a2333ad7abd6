"""The contract of every strategy, and whether guidance is worth its cost."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean, median

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.cost_model.adapted import AdaptedModel
from autotune.cost_model.features import Features
from autotune.cost_model.model import RandomModel
from autotune.errors import ConfigError, MeasureError
from autotune.search.simulation import Simulation, simulate
from autotune.search.strategies import STRATEGIES, make_strategy
from autotune.search.strategies.guided import Credit, Guided, GuidedOptions
from autotune.search.strategy import Strategy
from autotune.search.trial import Trial, best_trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.space import ConfigSpace, Member, TaskSpace
from autotune.testing import check_strategy
from tests.search.conftest import synthetic_trial


def make(name: str, space: ConfigSpace | TaskSpace, seed: int = 0) -> Strategy:
    return make_strategy(name, space, AdaptedModel(None, rounds=10), random.Random(seed))


@pytest.fixture
def task(space: ConfigSpace) -> TaskSpace:
    """Two templates, one of them tiny."""
    small = ConfigSpace((Choice("a", (1, 2, 3)),))
    return TaskSpace({"tiled": Member(space, space.default()), "plain": Member(small, Config.of(a=2))})


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_keeps_the_contract(name: str) -> None:
    check_strategy(STRATEGIES[name])


@pytest.mark.parametrize("name", STRATEGIES)
def test_proposing_without_results_and_with_only_failures_works(name: str, space: ConfigSpace) -> None:
    strategy = make(name, space)
    silent = [config for _ in range(8) for config in strategy.propose(8)]
    assert len(set(silent)) == 64
    for config in silent:
        strategy.observe(Trial(config, failure="crash"))
    assert len(strategy.propose(8)) == 8


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_search_goes_on_from_what_another_run_measured(name: str, space: ConfigSpace) -> None:
    """With 50 trials from elsewhere there is no warm-up: guided strategies work near what was good."""
    strategy = make(name, space)
    rng = random.Random(0)
    earlier = [synthetic_trial(space.sample(rng)) for _ in range(50)]
    for trial in earlier:
        strategy.observe(trial)
    proposals = strategy.propose(16)
    assert len(proposals) == 16 and not {trial.config for trial in earlier} & set(proposals)
    if name not in ("random", "grid"):
        known = sorted(trial.cost for trial in earlier)
        assert median(synthetic_trial(config).cost for config in proposals) < median(known)


@pytest.mark.parametrize("name", ("guided", "evolution"))
def test_guided_search_beats_random_at_equal_trials(name: str, space: ConfigSpace, simulation: Simulation) -> None:
    def reached(name: str) -> list[float]:
        runs = []
        for seed in range(12):
            strategy = make_strategy(name, space, AdaptedModel(None, seed=seed), random.Random(seed))
            best = best_trial(simulate(strategy, simulation, 64))
            assert best is not None
            runs.append(simulation.best / best.cost)
        return runs

    blind, guided = reached("random"), reached(name)
    assert mean(guided) > 0.96
    assert mean(guided) > mean(blind) + 0.04
    assert min(guided) > min(blind)


def test_the_gain_comes_from_the_model(space: ConfigSpace, simulation: Simulation) -> None:
    options = GuidedOptions(sources=("evolution",))

    def reached(make_model: Callable[[int], AdaptedModel | RandomModel]) -> float:
        runs = []
        for seed in range(12):
            guided = Guided(space, make_model(seed), random.Random(seed), options)
            best = best_trial(simulate(guided, simulation, 64))
            assert best is not None
            runs.append(simulation.best / best.cost)
        return mean(runs)

    learned = reached(lambda seed: AdaptedModel(None, seed=seed))
    assert learned > reached(lambda seed: RandomModel(random.Random(seed))) + 0.02


def test_descent_ends_where_no_step_is_better(space: ConfigSpace, simulation: Simulation) -> None:
    """Without any model: the random one orders the steps at random, and all of them are taken."""
    strategy = make_strategy("descent", space, RandomModel(random.Random(0)), random.Random(0))
    best = best_trial(simulate(strategy, simulation, 160))
    assert best is not None
    around = space.neighbours(best.config, random.Random(0))
    assert all(simulation.run(config).cost >= best.cost for config in around)


class CountingModel:
    """Knows nothing, and remembers what it was trained on."""

    def __init__(self) -> None:
        self.trained_on: list[int] = []

    @property
    def ready(self) -> bool:
        return bool(self.trained_on)

    def fit(self, features: Features, seconds: NDArray[np.float64], groups: NDArray[np.int64]) -> None:
        self.trained_on.append(len(seconds))

    def predict(self, features: Features) -> NDArray[np.float64]:
        assert self.ready
        return np.zeros(len(features))


def test_the_model_is_trained_after_warmup_and_then_when_data_grew_by_a_fifth(
    space: ConfigSpace, simulation: Simulation
) -> None:
    model = CountingModel()
    options = GuidedOptions(warmup=10, epsilon=0.0)
    simulate(Guided(space, model, random.Random(0), options), simulation, 60, batch=1)
    assert model.trained_on[0] == 10
    assert all(
        later == int(np.ceil(earlier * 1.2 - 1e-9))
        for earlier, later in zip(model.trained_on, model.trained_on[1:], strict=False)
    )


def test_nothing_is_learned_from_what_others_disturbed_once_there_is_enough_else(space: ConfigSpace) -> None:
    model = CountingModel()
    search = Guided(space, model, random.Random(0), GuidedOptions(warmup=4))
    for number, config in enumerate(list(space.enumerate())[:16]):
        search.observe(Trial(config, 1.0, disturbed=number % 2 == 0))
        search.propose(1)
    assert model.trained_on == [4, 5, 6, 4, 5, 6, 7]  # of 4, 5 and 6 trials, not yet four of them quiet, and of 8 to 15


@dataclass
class KnowingModel:
    """A model that learned elsewhere: it ranks before any trial, by what it was given; fitting is only noted."""

    space: ConfigSpace
    known: dict[bytes, float]
    fitted: list[int] = field(default_factory=list)

    ready = True

    def fit(self, features: Features, seconds: NDArray[np.float64], groups: NDArray[np.int64]) -> None:
        self.fitted.append(len(seconds))

    def predict(self, features: Features) -> NDArray[np.float64]:
        assert features.names == self.space.feature_names
        return np.array([-self.known[row.tobytes()] for row in features.values])


@pytest.fixture
def knowing(space: ConfigSpace) -> KnowingModel:
    known = {space.encode(c).tobytes(): min(synthetic_trial(c).cost, 1.0) for c in space.enumerate()}
    return KnowingModel(space, known)


def test_a_model_that_is_ready_ranks_the_first_batch(
    knowing: KnowingModel, space: ConfigSpace, simulation: Simulation
) -> None:
    strategy = Guided(space, knowing, random.Random(0), GuidedOptions(warmup=16, epsilon=0.0))
    first = strategy.propose(8)
    assert first[0] == space.default()
    assert max(synthetic_trial(config).cost for config in first[1:]) < 1.1 * simulation.best
    assert strategy.predicted == {}  # nothing was measured, so scores are no seconds yet
    for config in first:
        strategy.observe(synthetic_trial(config))
    second = strategy.propose(8)
    assert set(strategy.predicted) == set(second)
    assert knowing.fitted == []  # eight trials teach it nothing that it does not know


def test_breeding_begins_with_what_the_space_finds_promising(knowing: KnowingModel, space: ConfigSpace) -> None:
    """A population that all of the model's favourites are in needs no luck to propose them first."""
    best = sorted(space.enumerate(), key=lambda config: synthetic_trial(config).cost)[:6]
    task = TaskSpace({"synthetic": Member(space, space.default(), promising=lambda count: best[:count])})
    named = [config.replace(template="synthetic") for config in best]
    model = KnowingModel(task, {task.encode(c).tobytes(): min(synthetic_trial(c).cost, 1.0) for c in task.enumerate()})  # type: ignore[arg-type]
    strategy = Guided(task, model, random.Random(0), GuidedOptions(sources=("evolution",), epsilon=0.0))
    assert set(strategy.propose(7)[1:]) == set(named)


def test_a_model_that_is_ready_learns_once_there_is_enough(
    knowing: KnowingModel, space: ConfigSpace, simulation: Simulation
) -> None:
    simulate(Guided(space, knowing, random.Random(0), GuidedOptions(warmup=16)), simulation, 40)
    assert knowing.fitted[0] >= 16


def test_more_proposals_come_from_the_source_that_finds_more() -> None:
    rng = random.Random(0)
    credit = Credit(("a", "b"), memory=0.95)
    for _ in range(2):
        credit.count("a", True)
        credit.count("b", False)
        credit.count(None, True)  # a default or a random config
    chosen = [credit.choose(("a", "b"), rng) for _ in range(200)]
    assert 100 < chosen.count("a") < 200
    for _ in range(40):
        credit.count("a", False)
        credit.count("b", True)
    later = [credit.choose(("a", "b"), rng) for _ in range(200)]
    assert later.count("b") > 100
    assert credit.choose(("a",), rng) == "a"


def test_epsilon_one_is_random_search(space: ConfigSpace, simulation: Simulation) -> None:
    options = GuidedOptions(warmup=4, epsilon=1.0)
    trials = simulate(Guided(space, AdaptedModel(None), random.Random(0), options), simulation, 200)
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
