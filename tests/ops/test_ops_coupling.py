"""Probabilities of classes by those of pairs: known ones come back, and what libsvm computes is computed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autotune.errors import WorkloadError
from tests.ops.conftest import Run


@pytest.mark.parametrize("classes", [1, 2, 3, 9])
def test_consistent_pairs_give_their_classes_back(classes: int, run: Run) -> None:
    """Where class i is likely p[i] / (p[i] + p[j]) beside j, p solves all conditions."""
    p = np.random.default_rng(classes).random((5, classes)) + 0.1
    p /= p.sum(-1, keepdims=True)
    pairs = p[:, :, None] / (p[:, :, None] + p[:, None, :])
    found = run("coupled_probabilities", [pairs.astype("f4")])
    assert found.dtype == np.float32 and found.shape == p.shape
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(found, p, atol=0.02)  # rounds end before the last digits


def test_every_row_ends_by_itself(run: Run, same: Callable[..., None]) -> None:
    pairs = np.random.default_rng(0).random((7, 4, 4)).astype("f4")
    alone = [run("coupled_probabilities", [pairs[n : n + 1]]) for n in range(7)]
    same(run("coupled_probabilities", [pairs]), np.concatenate(alone))


def test_certainty_is_no_division_by_zero(run: Run) -> None:
    pairs = np.triu(np.ones((1, 3, 3), "f4"))
    found = run("coupled_probabilities", [pairs])
    assert np.isfinite(found).all() and found.argmax() == 0


def test_matrices_must_be_square(run: Run) -> None:
    with pytest.raises(WorkloadError, match="needs square matrices"):
        run("coupled_probabilities", [np.zeros((2, 3), "f4")])
