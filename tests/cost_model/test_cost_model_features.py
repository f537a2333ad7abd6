from __future__ import annotations

import numpy as np
import pytest

from autotune.cost_model.features import Features, check_same
from autotune.errors import CostModelError


def features(names: tuple[str, ...], rows: int = 2, version: int = 1) -> Features:
    return Features(names, np.zeros((rows, len(names)), np.float32), version)


def test_columns_can_be_found() -> None:
    both = Features.of(("a", "b"), [np.array([1, 2], np.float32), np.array([3, 4], np.float32)])
    assert len(both) == 2
    assert both.column("b").tolist() == [2, 4]
    with pytest.raises(CostModelError, match="no feature 'c'; there are a, b"):
        both.column("c")


def test_malformed_features_are_refused() -> None:
    with pytest.raises(CostModelError, match="two features have one name"):
        features(("a", "a"))
    with pytest.raises(CostModelError, match="2 features are named, but the matrix is"):
        Features(("a", "b"), np.zeros((3, 1), np.float32))
    with pytest.raises(CostModelError, match="'b' is infinite"):
        Features(("a", "b"), np.array([[0, np.inf]], np.float32))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (features(("a", "b", "c")), "adds 'c'"),
        (features(("a",)), "lacks 'b'"),
        (features(("b", "a")), "another order"),
        (features(("a", "b"), version=2), "version 1, not 2"),
    ],
)
def test_other_features_than_trained_on_are_refused(given: Features, message: str) -> None:
    with pytest.raises(CostModelError, match=message):
        check_same(features(("a", "b")), given)
    check_same(features(("a", "b")), features(("a", "b"), rows=9))
