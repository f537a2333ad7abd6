"""Trees as tables say what walking them says."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autotune.cost_model.complete_trees import CompleteTrees

COLUMNS = 5


def grown(rng: random.Random, depth: int) -> list[tuple[int, float, int]]:
    """(column, threshold, first child) of the nodes of a random tree; children lie behind their parents."""
    nodes = [(-1, 0.0, 0)]
    todo = [(0, 0)]
    while todo:
        place, level = todo.pop(0)
        if level == depth or (level and rng.random() < 0.3):
            nodes[place] = (-1, rng.gauss(0, 1), 0)
            continue
        nodes[place] = (rng.randrange(COLUMNS), rng.choice([-0.5, 0.0, 0.25, 1.0]), len(nodes))
        todo += [(len(nodes), level + 1), (len(nodes) + 1, level + 1)]
        nodes += [(-1, 0.0, 0), (-1, 0.0, 0)]
    return nodes


def walked(nodes: list[tuple[int, float, int]], row: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
    place = 0
    while nodes[place][0] >= 0:
        column, threshold, child = nodes[place]
        place = child + bool(row[column] >= np.float32(threshold))
    return nodes[place][1]


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("depth", [0, 1, 4, 9])
def test_each_row_ends_in_the_leaf_to_which_its_answers_lead(rows: int, depth: int) -> None:
    rng = random.Random(rows * 10 + depth)
    trees = [grown(rng, depth) for _ in range(6)]
    roots = np.cumsum([0, *(len(tree) for tree in trees[:-1])])
    nodes = [(c, t, child + first if c >= 0 else 0) for tree, first in zip(trees, roots) for c, t, child in tree]
    columns, thresholds, children = zip(*nodes)
    tables = CompleteTrees(
        np.array(columns, np.int16), np.array(thresholds, np.float32), np.array(children, np.int32),
        roots.astype(np.int32), COLUMNS,
    )  # fmt: skip
    values = np.random.default_rng(depth).choice([-1.0, -0.5, 0.0, 0.25, 1.0, 2.0, np.nan], (rows, COLUMNS))
    found = tables.leaves(values.astype(np.float32)).T
    expected = [[walked(tree, row) for tree in trees] for row in values.astype(np.float32)]
    assert (found == np.array(expected, np.float32)).all()
