"""Training over tasks: what carries over, what a lesson teaches, and how a model is adapted to one task."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.cost_model.adapted import AdaptedModel, nest_columns
from autotune.cost_model.features import Features
from autotune.cost_model.forest import Forest
from autotune.cost_model.metrics import pairwise_accuracy
from autotune.cost_model.training import Lesson, Recipe, closeness, left_out, score, train
from autotune.errors import CostModelError

NAMES = ("loads", "rows", "noise")
SMALL = Recipe(members=2, rounds=30, depth=4)


def lesson(n: int, rows: int = 80, twist: float = 0.0) -> Lesson:
    """A task of its own size whose times follow from the features, up to a `twist` that is its own."""
    rng = np.random.default_rng(n)
    values = rng.uniform(0, 1, (rows, 3)).astype(np.float32)
    cost = 1 + 3 * values[:, 0] + np.abs(values[:, 1] - 0.5) + twist * values[:, 2]
    seconds = 10.0 ** (n % 4 - 6) * cost.astype(np.float64)
    return Lesson(f"task {n}", f"op {n % 3}", f"cpu {n % 2}", Features(NAMES, values), seconds, f"machine {n // 3 % 2}")


@pytest.fixture(scope="module")
def forest() -> Forest:
    return train([lesson(n) for n in range(8)], SMALL)


def test_what_was_learned_holds_for_tasks_of_another_size(forest: Forest) -> None:
    found = score(forest, lesson(100))
    assert found.order > 0.9 and found.tenth > 0.95


def test_training_is_repeatable(forest: Forest) -> None:
    assert train([lesson(n) for n in range(8)], SMALL).to_bytes() == forest.to_bytes()


def test_labels_are_logarithms_of_the_distance_from_the_best() -> None:
    labels = closeness(np.array([2.0, 1.0, 1e9, np.inf]))
    assert labels.tolist() == pytest.approx([-np.log(2), 0, -np.log(12), -np.log(12)])


@pytest.mark.parametrize("by", ["task", "operator", "target", "machine"])
def test_every_lesson_is_scored_by_a_forest_that_has_not_seen_it(by: str) -> None:
    lessons = [lesson(n) for n in range(6)]
    found = left_out(lessons, by, SMALL, folds=3)
    assert sorted(s.name for s in found) == sorted(x.name for x in lessons)
    assert all(s.order > 0.8 for s in found)


def test_own_records_go_on_top_of_what_is_known(forest: Forest) -> None:
    mine = [lesson(n, twist=4.0) for n in range(20, 24)]
    both = train(mine, SMALL, base=forest)
    assert len(both.roots) == 2 * len(forest.roots)
    values = mine[0].features
    added = both.each(values) - forest.each(values)
    assert np.abs(added).max() > 0
    assert score(both, lesson(30, twist=4.0)).order > score(forest, lesson(30, twist=4.0)).order


def test_nothing_to_learn_is_said() -> None:
    equal = Lesson("t", "op", "cpu", Features(NAMES, np.zeros((3, 3), np.float32)), np.array([1.0, 1.0, np.inf]))
    with pytest.raises(CostModelError, match="nothing to learn"):
        train([equal])
    with pytest.raises(CostModelError, match="cannot leave out by 'colour'"):
        left_out([lesson(0)], "colour")


def test_attention_sums_to_one_and_names_what_matters(forest: Forest) -> None:
    shares = forest.attention()
    assert sum(shares.values()) == pytest.approx(1)
    assert next(iter(shares)) == "loads"


def test_an_adapted_model_knows_before_it_is_trained_and_more_afterwards(forest: Forest) -> None:
    task = lesson(40, rows=200, twist=4.0)
    model, groups = AdaptedModel(forest), np.zeros(60, np.int64)
    assert model.ready and not AdaptedModel(None).ready
    before = pairwise_accuracy(model.predict(task.features), task.seconds)
    first = Features(NAMES, task.features.values[:60])
    model.fit(first, task.seconds[:60], groups)
    rest = Features(NAMES, task.features.values[60:])
    after = pairwise_accuracy(model.predict(rest), task.seconds[60:])
    assert 0.5 < before < after
    with pytest.raises(CostModelError, match="call fit"):
        AdaptedModel(None).predict(rest)


def test_a_task_of_several_templates_is_known_where_it_has_nests(forest: Forest) -> None:
    names = ("template=a", "template=b", "a/loads", "a/rows", "a/noise", "b/knob")
    assert nest_columns(names, NAMES) == [[2, 3, 4]]
    nests = lesson(50, rows=40).features.values
    missing = np.full((40, 1), np.nan, np.float32)
    rows_a = np.hstack([np.ones((40, 1)), np.zeros((40, 1)), nests, missing]).astype(np.float32)
    rows_b = np.hstack([np.zeros((2, 1)), np.ones((2, 1)), np.full((2, 3), np.nan), [[1], [2]]]).astype(np.float32)
    scores: NDArray[np.float64] = AdaptedModel(forest).predict(Features(names, np.vstack([rows_a, rows_b])))
    assert np.allclose(scores[:40], forest.predict(Features(NAMES, nests)))
    assert np.allclose(scores[40:], np.median(scores[:40]))
