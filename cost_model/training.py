"""Training: from measured nests of many tasks to a forest that knows nests of tasks it never saw.

What is learned is how far a candidate is from the best of its task, in logarithms, so that a model of seconds is not
needed: only candidates of one task are ever compared. Each member learns from other tasks; where they disagree, nobody
has measured anything like it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.features import Features
from autotune.cost_model.forest import Forest, forest_of, starting_score
from autotune.cost_model.metrics import best_of_top_k, pairwise_accuracy
from autotune.cost_model.prior import Prior
from autotune.errors import CostModelError

WORST = 12.0
"""Candidates slower than that many times the best are all as good as one that is so slow."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a forest is grown; the values were chosen by `left_out` on tasks, among a handful of others.

    Attributes:
        members: models, each trained on its own `share` of the tasks.
        rounds, depth, rate: trees of a model, their depth, and how much each may correct.
        rows, columns: shares of the candidates and of the features that a tree sees.
        start, weight: the column of a closed form's cycles that scores start from, where the features have it, and how
            much it counts.
    """

    members: int = 8
    rounds: int = 150
    depth: int = 5
    rate: float = 0.1
    rows: float = 0.7
    columns: float = 0.6
    share: float = 0.8
    start: str = "cycles"
    weight: float = 0.7


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """The measured candidates of one task.

    Attributes:
        name: of the task. `operator`, `target`: what it computes, and on what, for tests that leave them out.
        features: a row per candidate. `seconds`: its time; infinity where it failed.
        machine: where it was measured, if that is known: one machine has several targets.
    """

    name: str
    operator: str
    target: str
    features: Features
    seconds: NDArray[np.float64]
    machine: str = ""

    @property
    def useful(self) -> bool:
        """Whether there is an order to learn."""
        return len(np.unique(self.seconds[np.isfinite(self.seconds)])) >= 2


def closeness(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(best / seconds) of candidates of one task: 0 for the best, no less than -log(WORST)."""
    with np.errstate(divide="ignore"):
        found = np.log(seconds[np.isfinite(seconds)].min() / seconds)
    return np.asarray(np.maximum(found, -np.log(WORST)), np.float64)


def train(
    lessons: Sequence[Lesson],
    recipe: Recipe | None = None,
    *,
    base: Forest | None = None,
    seed: int = 0,
    note: str = "",
) -> Forest:
    """A forest that knows what the lessons teach; the same for the same lessons, recipe and seed.

    Args:
        base: what is known already; new trees learn what it leaves unexplained.

    Raises:
        CostModelError: no lesson with an order to learn, or lessons of different features.
    """
    import xgboost  # half a second, and only who trains needs it

    how, useful = recipe or Recipe(), [lesson for lesson in lessons if lesson.useful]
    if not useful:
        raise CostModelError("there is nothing to learn from: no task has two candidates of different times")
    names, version = useful[0].features.names, useful[0].features.version
    if any((lesson.features.names, lesson.features.version) != (names, version) for lesson in useful):
        raise CostModelError("the lessons have different features; measure them with one version")
    start = how.start if base is None and how.start in names else ""
    rng = np.random.default_rng(seed)
    dumps = []
    for member in range(how.members):
        count = max(1, round(how.share * len(useful))) if how.members > 1 else len(useful)
        picked = [useful[n] for n in sorted(rng.choice(len(useful), count, replace=False))]
        values = np.concatenate([lesson.features.values for lesson in picked])
        labels = [closeness(lesson.seconds) for lesson in picked]
        if base is None:
            known = [starting_score(lesson.features, start, how.weight) for lesson in picked]
        else:
            known = [base.predict(lesson.features) for lesson in picked]
        # Tasks weigh the same, and in each the good candidates more: it is their order that matters.
        weights = np.concatenate([np.exp(label) / len(label) for label in labels])
        # What all candidates of a task have in common says nothing about their order, and is not to be learned.
        unexplained = np.concatenate([_centred(label - score, np.exp(label)) for label, score in zip(labels, known)])
        matrix = xgboost.DMatrix(
            np.nan_to_num(values, nan=float(np.finfo(np.float32).min)),
            unexplained,
            weight=weights / weights.mean(),
            nthread=1,
        )
        parameters = {
            "objective": "reg:squarederror",
            "base_score": 0.0,
            "max_depth": how.depth,
            "eta": how.rate,
            "subsample": how.rows,
            "colsample_bytree": how.columns,
            "min_child_weight": 3,
            "lambda": 2,
            "tree_method": "hist",
            "nthread": 1,
            "seed": seed + member,
        }
        dumps.append(xgboost.train(parameters, matrix, how.rounds).get_dump(dump_format="json"))
    grown = forest_of(dumps, names, version, start=start, weight=how.weight if start else 0.0, note=note)
    return grown if base is None else base.plus(grown)


def _centred(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(values - np.average(values, weights=weights), np.float64)


@dataclass(frozen=True, slots=True)
class Score:
    """How well a forest knew a task that it had not learned from.

    Attributes:
        order: pairs whose times differ by more than 3 % in the right order.
        first, tenth: speed of the candidate ranked first, of the best of the ten ranked first, relative to the best.
    """

    name: str
    candidates: int
    order: float
    first: float
    tenth: float


APART = 0.03
"""Times that differ by no more than this share are not told apart: measuring again might swap them."""


def score(forest: Forest | Prior, lesson: Lesson) -> Score:
    """How a model ranks the candidates of a lesson."""
    worked = np.isfinite(lesson.seconds)
    features = Features(lesson.features.names, lesson.features.values[worked], lesson.features.version)
    expected, seconds = forest.predict(features), lesson.seconds[worked]
    order = pairwise_accuracy(expected, seconds, apart=APART)
    first, tenth = (best_of_top_k(expected, seconds, k) for k in (1, 10))
    return Score(lesson.name, len(seconds), order, first, tenth)


LEFT_OUT = ("task", "operator", "target", "machine")
"""What a test may leave out together."""


def check_left_out(by: str) -> None:
    """Raises CostModelError where nothing can be left out by this."""
    if by not in LEFT_OUT:
        raise CostModelError(f"cannot leave out by {by!r}; choose {', '.join(LEFT_OUT[:-1])} or {LEFT_OUT[-1]}")


def left_out(
    lessons: Sequence[Lesson], by: str, recipe: Recipe | None = None, *, base: Forest | None = None, folds: int = 5
) -> list[Score]:
    """Scores of all lessons by forests trained without them, on top of `base`.

    Args:
        by: what is left out together, of `LEFT_OUT`.
        folds: into how many parts tasks are dealt; all else is left out one at a time.
    """
    check_left_out(by)
    useful = [lesson for lesson in lessons if lesson.useful]
    if by == "task":
        names = sorted({lesson.name for lesson in useful})
        parts = {name: str(n % folds) for n, name in enumerate(np.random.default_rng(0).permutation(names))}
        part_of = [parts[lesson.name] for lesson in useful]
    else:
        part_of = [str(getattr(lesson, by)) for lesson in useful]
    found = []
    for part in sorted(set(part_of)):
        others = [lesson for lesson, own in zip(useful, part_of) if own != part]
        if others:
            forest = train(others, recipe, base=base)
            found += [score(forest, lesson) for lesson, own in zip(useful, part_of) if own == part]
    return found
