"""How well cost models order configs they have not seen, on spaces that benchmarks.record_space measured.

python -m benchmarks.cost_model benchmarks/spaces
python -m benchmarks.cost_model DIR --seeds 5 --plot model.png
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.adapted import AdaptedModel
from autotune.cost_model.features import Features
from autotune.cost_model.metrics import best_of_top_k, pairwise_accuracy
from autotune.cost_model.model import CostModel, RandomModel
from autotune.search.space_recording import SpaceRecording
from benchmarks.record_space import recorded
from benchmarks.report import Report, Row, parser, progress

METHOD = (
    "Of each recorded space so many configs are drawn as its random sample gives them, a model is trained on them and "
    "orders all the others; means over the seeds. Pairs: share in the right order among pairs more than 3 % apart; "
    "chance is a half. Top 10: the best speed among the ten ranked first, relative to the best of all that were not "
    "trained on. Across: trained on all other recordings with the same features and on nothing of this one."
)
TRAINED = (16, 32, 64, 128)
APART = 0.03
TOP = 10
PAIRS_BOUND, TOP_BOUND, ACROSS_BOUND = 0.88, 0.97, 0.75

MODELS: Mapping[str, Callable[[int], CostModel]] = {
    "trees": lambda seed: AdaptedModel(None, seed=seed),
    "random": lambda seed: RandomModel(random.Random(seed)),
}


class Table:
    """A recording as arrays; configs of equal code are one row."""

    def __init__(self, recording: SpaceRecording) -> None:
        points = {point.ir_hash or key: point for key, point in recording.points.items()}.values()
        self.name = recording.name
        self.names = recording.feature_names
        self.values = np.stack([point.features for point in points])
        self.seconds = np.array([point.trial.cost for point in points])

    def features(self, rows: NDArray[np.intp]) -> Features:
        return Features(self.names, self.values[rows])

    def __len__(self) -> int:
        return len(self.seconds)


def held_out(table: Table, model: CostModel, trained: int, seed: int) -> tuple[float, float]:
    """Pairs in the right order, and the best of the top, among the rows that the model was not trained on."""
    order = np.random.default_rng(seed).permutation(len(table))
    seen, unseen = order[:trained], order[trained:]
    model.fit(table.features(seen), table.seconds[seen], np.zeros(len(seen), np.int64))
    return judged(table, model, unseen)


def across(tables: Sequence[Table], left_out: int, model: CostModel) -> tuple[float, float]:
    """The same for a table that the model knows nothing of."""
    others = [table for number, table in enumerate(tables) if number != left_out]
    features = Features(others[0].names, np.concatenate([table.values for table in others]))
    groups = np.repeat(np.arange(len(others)), [len(table) for table in others])
    model.fit(features, np.concatenate([table.seconds for table in others]), groups)
    return judged(tables[left_out], model, np.arange(len(tables[left_out])))


def judged(table: Table, model: CostModel, rows: NDArray[np.intp]) -> tuple[float, float]:
    scores = model.predict(table.features(rows))
    seconds = table.seconds[rows]
    return pairwise_accuracy(scores, seconds, APART), best_of_top_k(scores, seconds, TOP)


def plot(rows: Sequence[Row], path: Path) -> None:
    """Pairs in the right order against trials trained on, a line per task; one panel per model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(MODELS), 4), layout="constrained")
    for panel, model in zip(figure.subplots(1, len(MODELS), sharey=True), MODELS, strict=True):
        for row in (row for row in rows if row["model"] == model):
            sizes = [size for size in TRAINED if row.get(f"pairs {size}") is not None]
            panel.plot(sizes, [row[f"pairs {size}"] for size in sizes], marker="o", label=row["task"])
        panel.axhline(PAIRS_BOUND, color="grey", linewidth=0.5)
        panel.set(title=model, xscale="log", xlabel="trials trained on", ylabel="pairs in the right order")
    figure.axes[0].legend(fontsize="x-small")
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> int:
    options = parser("cost_model", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.description = __doc__
    options.add_argument("spaces", type=Path, metavar="DIR", help="what benchmarks.record_space wrote")
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--plot", type=Path, metavar="FILE", help="draw the learning curves (needs matplotlib)")
    given = options.parse_args(arguments)
    if given.plot and find_spec("matplotlib") is None:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib")
    paths = recorded(given.spaces)[: 1 if given.quick else None]
    tables = [Table(SpaceRecording.load(path)) for path in paths]
    report = Report("cost_model", METHOD, given.quick)
    rows = [_within(table, name, 2 if given.quick else given.seeds) for table in tables for name in MODELS]
    report.table("within a task", rows)
    report.table("over all tasks", [_overall(rows, name) for name in MODELS])
    families = [[t for t in tables if t.names == names] for names in dict.fromkeys(t.names for t in tables)]
    foreign = [row for family in families if len(family) > 1 for row in _across(family)]
    report.table("across tasks", foreign)
    best = [row for row in rows if row["model"] == "trees"]
    for size, bound in ((TRAINED[-1], PAIRS_BOUND),):
        known = [float(row[f"pairs {size}"] or 0) for row in best if row.get(f"pairs {size}") is not None]
        report.claim(
            f"pairs after {size} trials, mean over the tasks", mean(known) if known else None, "at least", bound
        )
    for row in (row for row in foreign if row["model"] == "trees"):
        report.claim(f"pairs across, {row['task']}", float(row["pairs"] or 0), "at least", ACROSS_BOUND)
        report.claim(f"best of the top 10 across, {row['task']}", float(row["top 10"] or 0), "at least", TOP_BOUND)
    if given.plot:
        plot(rows, given.plot)
    report.finish(given.json)
    return 0


def _within(table: Table, name: str, seeds: int) -> Row:
    progress(f"{table.name}: {name}")
    row: dict[str, str | int | float | None] = {"task": table.name, "codes": len(table), "model": name}
    for size in TRAINED:
        if len(table) >= 2 * size:  # else there is too little left to order
            found = [held_out(table, MODELS[name](seed), size, seed) for seed in range(seeds)]
            row |= {f"pairs {size}": mean(p for p, _ in found), f"top 10 {size}": mean(t for _, t in found)}
    return row


def _across(family: Sequence[Table]) -> list[Row]:
    rows: list[Row] = []
    for number, table in enumerate(family):
        for name in MODELS:
            pairs, top = across(family, number, MODELS[name](0))
            rows.append({"task": table.name, "model": name, "pairs": pairs, "top 10": top})
    return rows


def _overall(rows: Sequence[Row], name: str) -> Row:
    own = [row for row in rows if row["model"] == name]
    columns = dict.fromkeys(column for row in own for column in row if column.split()[-1].isdigit())
    values = {column: [float(row[column] or 0) for row in own if column in row] for column in columns}
    return {"model": name, **{f"median {column}": median(found) for column, found in values.items()}}


if __name__ == "__main__":
    sys.exit(main())
