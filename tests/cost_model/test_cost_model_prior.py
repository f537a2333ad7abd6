"""What is known of nests, by a model of all and one of matrix registers."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from autotune.cost_model import prior as module
from autotune.cost_model.features import FEATURES_VERSION, Features
from autotune.cost_model.forest import Forest
from autotune.cost_model.prior import FOLDED, LIFT, VECTORS_FOLD, Prior, prior
from autotune.cost_model.prior_files import OF_TILES, SHIPPED
from autotune.errors import CostModelError
from autotune.ops import parse_workload
from autotune.search_spaces.sketch.nest_numbers import NAMES
from autotune.search_spaces.sketch.space import SketchSpace
from autotune.search_spaces.space.registry import lookup
from tests.targets import fixed


def random_features(folds: list[float]) -> Features:
    values = np.random.default_rng(0).uniform(0.1, 3.0, (len(folds), len(NAMES))).astype(np.float32)
    values[:, NAMES.index(FOLDED)] = folds
    return Features(NAMES, values, FEATURES_VERSION)


@pytest.mark.parametrize("folds", [[0.0, 6.0, VECTORS_FOLD, 5.0], [0.0], [6.0]])
def test_each_row_is_known_by_the_model_of_its_kind(folds: list[float]) -> None:
    nests, tiles = Forest.read(SHIPPED), Forest.read(OF_TILES)
    features, tiled = random_features(folds), np.array(folds) > VECTORS_FOLD
    alone = Prior(nests)
    vectors = np.minimum(nests.predict(features), alone.closed(features) + LIFT)
    expected = np.where(tiled, tiles.predict(features), vectors)
    assert Prior(nests, tiles).predict(features) == pytest.approx(expected)
    assert alone.predict(features) == pytest.approx(np.where(tiled, alone.closed(features), vectors))


def test_trees_are_not_believed_where_the_closed_form_knows_much_worse() -> None:
    """10 rows by one vector, of a strided convolution, whose blocks fit into no cache: trees like nothing better."""
    space = lookup("sketch.contraction").space(
        parse_workload("conv2d data=1,256,56,56 weight=512,256,1,1 stride=2 + bias + residual + relu"),
        fixed("x86 -mcpu=znver3 -num-cores=1"),
    )
    assert isinstance(space, SketchSpace)
    good = space.foreseen(1)[0]
    bad = good.replace(
        **{"tile": (1, 1, 10, 1), "block.k": 2, "block.oh": 2, "block.ow": 8, "depth": 0, "inner": (3, 2, 1),
           "outer": (3, 2, 1), "unroll": 8}
    )  # fmt: skip
    known = prior(NAMES, FEATURES_VERSION)
    assert known is not None
    features = Features(NAMES, space.encode_all([bad, good]), FEATURES_VERSION)
    closed, expected = known.closed(features), known.predict(features)
    assert closed[0] < closed[1] - 2 * LIFT and expected[0] < expected[1]


def test_other_features_are_refused() -> None:
    known, features = Prior(Forest.read(SHIPPED)), random_features([0.0])
    with pytest.raises(CostModelError):
        known.predict(Features(features.names, features.values, FEATURES_VERSION + 1))


def test_both_ship() -> None:
    found = prior(NAMES, FEATURES_VERSION)
    assert found is not None and found.tiles is not None
    assert (found.names, found.version) == (NAMES, FEATURES_VERSION)
    assert prior(NAMES[1:], FEATURES_VERSION) is None


def test_a_shipped_model_that_is_damaged_is_passed_over_with_a_line_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Training makes one's own model of nests, and none of tiles."""
    (damaged := tmp_path / "tiles.forest").write_bytes(b"nothing")
    monkeypatch.setattr(module, "OF_TILES", damaged)
    with caplog.at_level(logging.WARNING):
        found = prior(NAMES, FEATURES_VERSION)
    assert found is not None and found.tiles is None
    (record,) = caplog.records
    assert str(damaged) in record.getMessage() and record.getMessage().endswith("; install autotune again")
