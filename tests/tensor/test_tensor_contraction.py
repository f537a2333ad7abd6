"""Products of a small matrix and a long one are those of NumPy, whatever the pieces."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.tensor import contraction
from autotune.tensor.contraction import ALONE, LONG, _multiplied


@pytest.mark.parametrize("columns", [1, LONG, ALONE // 54, ALONE // 54 + 1, 3 * (ALONE // 54) + 7])
@pytest.mark.parametrize(("left", "right"), [(np.float64, np.float64), (np.float64, np.float32), (np.int64, np.int64)])
def test_long_products_are_multiplied_in_pieces(columns: int, left: type, right: type) -> None:
    rng = np.random.default_rng(columns)
    a: NDArray[np.generic] = rng.integers(-4, 5, (1, 6, 9)).astype(left)
    b: NDArray[np.generic] = rng.integers(-4, 5, (1, 9, columns)).astype(right)
    found = _multiplied(a, b)
    assert found.dtype == np.result_type(a, b)
    np.testing.assert_array_equal(found, np.matmul(a, b))


def test_large_matrices_and_stacks_are_multiplied_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contraction, "ALONE", 1 << 12)
    for shape in ((1, 64, 64), (2, 2, 2)):
        a, b = np.ones(shape), np.ones((shape[0], shape[2], 5000))
        np.testing.assert_array_equal(_multiplied(a, b), np.matmul(a, b))
    with np.errstate(all="ignore"):
        assert _multiplied(np.ones((1, 0, 4)), np.ones((1, 4, 0))).shape == (1, 0, 0)
