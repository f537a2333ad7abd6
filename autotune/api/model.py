"""The cost model as users meet it: trained from their records, evaluated on tasks left out, explained, set back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.api.locate import DatabaseLike, reading
from autotune.cost_model.features import FEATURES_VERSION
from autotune.cost_model.forest import Forest
from autotune.cost_model.prior import in_use, prior
from autotune.cost_model.prior_files import SHIPPED, own_path
from autotune.cost_model.training import Lesson, Score, check_left_out, left_out, score, train
from autotune.errors import CostModelError
from autotune.machine import write_whole
from autotune.search.learning import lessons
from autotune.search_spaces.sketch.nest_numbers import NAMES


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of training.

    Attributes:
        path: of the file. `bytes`: its size.
        tasks, candidates: that it has learned from.
    """

    path: Path
    bytes: int
    tasks: int
    candidates: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How well tasks are known.

    Attributes:
        before: by the model in use. `left_out`: by models trained on all other tasks, or operators, or targets.
    """

    before: tuple[Score, ...]
    left_out: tuple[Score, ...]


def train_model(databases: Sequence[DatabaseLike], path: Path | None = None, *, from_scratch: bool = False) -> Trained:
    """Learns from all portable trials of some databases.

    Args:
        databases: files, or None for the user's own.
        path: of the model; None for the user's own, which is then in use.
        from_scratch: without the shipped model underneath.

    Raises:
        CostModelError: there is nothing to learn from, or the file cannot be written.
        DatabaseError: a database cannot be read.
    """
    found = [lesson for lesson in _all_lessons(databases) if lesson.useful]
    candidates = sum(len(lesson.seconds) for lesson in found)
    note = f"{len(found)} tasks, {candidates} candidates"
    forest = train(found, base=None if from_scratch else _shipped(), note=note)
    target = path or own_path()
    if target is None:
        raise CostModelError("the model has no place: set HOME or XDG_CACHE_HOME, or name a file")
    data = forest.to_bytes()
    try:
        write_whole(target, data)
    except OSError as error:
        raise CostModelError(f"cannot write the cost model {target}: {error.strerror}") from error
    return Trained(target, len(data), len(found), candidates)


def evaluate_model(databases: Sequence[DatabaseLike], by: str = "task") -> Evaluation:
    """How well the model in use knows what was measured, and what training on the rest would make of it.

    Args:
        databases: files, or None for the user's own.
        by: what is left out together: "task", "operator", "target" or "machine".

    Raises:
        CostModelError: there is nothing to learn from, or another `by`.
    """
    check_left_out(by)
    found = [lesson for lesson in _all_lessons(databases) if lesson.useful]
    if not found:
        raise CostModelError("there is nothing to evaluate on: no task has two candidates of different times")
    used = prior(NAMES, FEATURES_VERSION)
    before = [] if used is None else [score(used, lesson) for lesson in found]
    return Evaluation(tuple(before), tuple(left_out(found, by)))


def model_in_use() -> tuple[Forest, Path] | None:
    """The model that chooses untuned schedules, and its file; None when there is none that fits."""
    return in_use(NAMES, FEATURES_VERSION)


def reset_model() -> Path | None:
    """Removes the user's own model, so that the shipped one is used; the file removed, None when there was none."""
    own = own_path()
    if own is None or not own.exists():
        return None
    own.unlink()
    return own


def _all_lessons(databases: Sequence[DatabaseLike]) -> list[Lesson]:
    found: list[Lesson] = []
    for one in databases:
        with reading(one) as database:
            found += lessons(database) if database is not None else []
    return found


def _shipped() -> Forest | None:
    return Forest.read(SHIPPED) if SHIPPED.exists() else None
