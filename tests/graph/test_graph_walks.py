"""Tables of trees that are walked: every walk ends in the leaf that the trees say, and learns what it holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.frontend.learned.forest import MODES, Forest, Key, Split, forest
from autotune.graph.frontend.learned.walks import TOGETHER, Walk, columns, parted, walk
from autotune.tensor.trees import LINK, tree_leaves
from tests.ops.test_ops_leaf_masks import FEATURES, asked, data, ends, grown


def said(one: Walk, x: np.ndarray) -> np.ndarray:
    """(rows, trees, targets): what the leaves hold."""
    dtype = np.dtype(f"f{one.nodes.dtype.itemsize}")
    wide = np.full((len(x), columns(x.shape[1])), np.nan, dtype)
    wide[:, : x.shape[1]] = x
    (found,) = tree_leaves([wide, one.nodes, one.roots], {"depth": one.depth})
    return found.view(dtype)[:, :, None] if one.weights is None else one.weights[found]


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 20), st.integers(0, 8), st.integers(1, 3),
    st.sampled_from([None, False, True]), st.sampled_from([np.float32, np.float64]),
)  # fmt: skip
def test_walks_end_in_the_leaf_that_the_trees_say(
    seed: int, trees: int, depth: int, targets: int, nan: bool | None, dtype: type[np.floating]
) -> None:
    rng = np.random.default_rng(seed)
    found = grown(rng, trees, depth, MODES[:-1], nan)
    found = replace(found, limits=found.limits.astype(dtype))
    x = asked(found, data(rng, 9)).astype(dtype)
    weights = rng.standard_normal((len(found.below), targets)).astype(dtype)
    weights[rng.random(weights.shape) < 0.1] = np.nan
    one = walk(found, weights, x.shape[1])
    np.testing.assert_array_equal(said(one, x), weights[ends(found, x)])
    assert one.nodes.dtype.itemsize == one.roots.dtype.itemsize == np.dtype(dtype).itemsize
    assert len(one.nodes) & (len(one.nodes) - 1) == 0


def test_words_are_wider_where_links_need_it() -> None:
    """2^21 columns leave room for 2^11 nodes."""
    rng = np.random.default_rng(0)
    few, many = grown(rng, 4, 7, MODES[:1], False), grown(rng, 40, 8, MODES[:1], False)
    weights = np.ones((len(many.below), 1), np.float32)
    assert len(few.below) < 2**11 - 2 * TOGETHER and len(many.below) > 2**11
    assert walk(few, weights, 2**20).nodes.dtype == np.int32
    one = walk(many, weights, 2**20)
    assert one.nodes.dtype == np.int64 and one.nodes[:, LINK].max() >= 2**32


def test_parts_have_all_trees_and_no_more_nodes_than_they_may() -> None:
    found = grown(np.random.default_rng(1), 30, 5, MODES[:1], False)
    sizes = [len(walk(replace(found, roots=found.roots[n : n + 1]), np.ones((len(found.below), 1)), FEATURES).nodes)
             for n in range(30)]  # fmt: skip
    parts = parted(found, max(sizes))
    assert 1 < len(parts) < 30 and [r for part in parts for r in part.roots] == found.roots.tolist()
    assert [len(part.roots) for part in parted(found, 1)] == [1] * 30


def test_branches_that_meet_are_stored_once() -> None:
    """Written out, this tree has 2^40 leaves."""
    splits: dict[Key, Split] = {(n,): Split("BRANCH_LEQ", 0, 0.0, (n + 1,), (n + 1,)) for n in range(40)}
    found = forest("trees", splits, [(0,)], 1, np.dtype(np.float32))
    one = walk(found, np.full((len(found.below), 1), 7.0), 1)
    assert len(one.nodes) == 128 and parted(found, 100)[0].roots.tolist() == [0]
    assert said(one, np.array([[1.0], [-1.0]], np.float32)).tolist() == [[[7.0]], [[7.0]]]


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("limit", [-np.inf, np.inf, np.nan])
@pytest.mark.parametrize("mode", MODES[:-1])
def test_limits_without_neighbours(mode: str, limit: float, nan: bool) -> None:
    """Nothing is less than the least number, and nothing compares with NaN."""
    splits: dict[Key, Split] = {("root",): Split(mode, 0, limit, ("yes",), ("no",), nan)}
    found = forest("trees", splits, [("root",)], 1, np.dtype(np.float32))
    x = np.array([-np.inf, -1.0, np.inf, np.nan], np.float32)[:, None]
    compare = {"BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GTE": np.greater_equal,
               "BRANCH_GT": np.greater, "BRANCH_EQ": np.equal, "BRANCH_NEQ": np.not_equal}[mode]  # fmt: skip
    expected = np.where(np.isnan(x[:, 0]), nan, compare(x[:, 0], np.float32(limit)))
    assert [_order(found, leaf) for leaf in ends(found, asked(found, x))[:, 0]] == [
        ("yes",) if yes else ("no",) for yes in expected
    ]


def _order(found: Forest, node: int) -> Key | None:
    return found.order[node]
