"""Trees as masks against trees that are walked: any shape, any NaN, across rows and across trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.frontend.learned.forest import FIRST, MIXED, MODES, SECOND, Forest, Key, Split, forest
from autotune.graph.frontend.learned.leaves import UNIT, Leaves, masked
from autotune.ops.leaf_masks import ALL, WORD

FEATURES = 5


def grown(rng: np.random.Generator, trees: int, depth: int, modes: tuple[str, ...], nan: bool | None) -> Forest:
    """Trees that split at random, of thresholds that the data meets; `nan` says yes to it, or at random."""
    splits: dict[Key, Split] = {}

    def grow(key: Key, left: int) -> None:
        if left and (left == depth or rng.random() < 0.8):
            yes, no = (*key, 0), (*key, 1)
            goes = bool(rng.integers(2)) if nan is None else nan
            splits[key] = Split(
                str(rng.choice(modes)), int(rng.integers(FEATURES)), float(rng.integers(-3, 4)), yes, no, goes
            )
            grow(yes, left - 1)
            grow(no, left - 1)

    roots: list[Key] = [(tree,) for tree in range(trees)]
    for root in roots:
        grow(root, depth)
    return forest("trees", splits, roots, FEATURES, np.dtype(np.float32))


def data(rng: np.random.Generator, rows: int) -> np.ndarray:
    x = rng.integers(-4, 5, (rows, FEATURES)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = rng.choice([np.nan, np.inf, -np.inf])
    return x


def asked(grown: Forest, x: np.ndarray) -> np.ndarray:
    """The columns that nodes ask for."""
    least = np.where(np.isnan(x), np.float32(-np.inf), x)
    return {SECOND: x, FIRST: least, MIXED: np.concatenate([x, least], axis=1)}[grown.nan]


def ends(grown: Forest, x: np.ndarray) -> np.ndarray:
    """Leaves by number, (rows, trees)."""
    here, rows = np.broadcast_to(grown.roots, (len(x), len(grown.roots))), np.arange(len(x))[:, None]
    for _ in range(grown.depth):
        goes = x[rows, grown.features[here]] <= grown.limits[here]
        here = np.where(grown.below[here] < 0, here, grown.below[here] + ~goes)
    return here


def remaining(group: Leaves, x: np.ndarray) -> np.ndarray:
    """Leaves by number, (rows, trees), as the operator's definition has them."""
    left = np.bitwise_and.reduce(np.where(x[:, group.features] <= group.limits, np.uint32(ALL), group.masks), axis=2)
    bits = (left[:, :, None] >> np.arange(WORD, dtype=np.uint32)) & 1
    numbers: np.ndarray = bits.reshape(len(x), -1, group.words * WORD).argmax(2)
    return numbers


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 20), st.integers(1, 8), st.sampled_from([None, False, True]), st.booleans()
)
def test_what_remains_is_where_a_walk_ends(
    seed: int, trees: int, depth: int, nan: bool | None, all_modes: bool
) -> None:
    rng = np.random.default_rng(seed)
    found = grown(rng, trees, depth, MODES[:-1] if all_modes else MODES[:1], nan)
    x = asked(found, data(rng, 9))
    groups, rest = masked(found, 1000)
    told = [np.zeros((len(x), 0), int)]
    for group in groups:
        numbers = remaining(group, x)
        told += [np.array([group.numbers[t][n] for n in numbers[:, t]])[:, None] for t in range(len(group.numbers))]
    if rest is not None:
        told.append(ends(rest, x))
    assert sorted(map(tuple, np.concatenate(told, 1).T)) == sorted(map(tuple, ends(found, x).T))


def test_trees_of_many_splits_are_walked_and_fill_no_group() -> None:
    rng = np.random.default_rng(0)
    found = grown(rng, 6, 9, MODES[:1], False)
    groups, rest = masked(found, 3)
    assert found.nan == SECOND and rest is not None
    assert sum(len(group.numbers) for group in groups) + len(rest.roots) == 6
    assert all(len(group.masks) % (UNIT * group.words) == 0 for group in groups)


def test_branches_that_meet_again_and_again_are_walked() -> None:
    """Written out, this tree has 2^40 leaves."""
    splits: dict[Key, Split] = {(n,): Split("BRANCH_LEQ", 0, 0.0, (n + 1,), (n + 1,)) for n in range(40)}
    groups, rest = masked(forest("trees", splits, [(0,)], 1, np.dtype(np.float32)), 16)
    assert not groups and rest is not None and rest.depth == 40


@pytest.mark.parametrize("words", [1, 2, 5])
def test_weights_of_trees_that_only_fill_up_change_nothing(words: int) -> None:
    group = Leaves(
        np.zeros((16 * words, 1)), np.zeros((16 * words, 1)), np.zeros((16 * words, 1)), words, ((1, 0), (2,))
    )
    weights = group.weights(np.array([[1.0], [2.0], [3.0]]), -np.inf)
    assert weights.shape == (16, words * WORD, 1)
    assert weights[0, :2, 0].tolist() == [2, 1] and weights[1, 0, 0] == 3 and np.isneginf(weights[2:]).all()
