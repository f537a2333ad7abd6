"""Scores as seconds."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.cost_model.calibration import Calibration
from autotune.errors import CostModelError


def test_the_curve_falls_and_meets_what_was_in_order() -> None:
    scores = np.array([3.0, 1.0, 2.0, 0.0])
    seconds = np.array([1.0, 4.0, 2.0, np.inf])
    found = Calibration.of(scores, seconds)
    np.testing.assert_allclose(found.seconds(scores[:3]), seconds[:3])
    np.testing.assert_allclose(found.seconds(np.array([9.0, -9.0])), [1.0, 4.0])
    np.testing.assert_allclose(found.seconds(np.array([1.5])), [8**0.5])


def test_what_is_out_of_order_is_pooled() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal(200)
    seconds = np.exp(-scores + rng.standard_normal(200))
    found = Calibration.of(scores, seconds)
    curve = found.seconds(np.sort(scores))
    assert (np.diff(curve) <= 1e-12).all()
    assert np.log(curve).mean() == pytest.approx(np.log(seconds).mean())


def test_failures_alone_tell_nothing() -> None:
    with pytest.raises(CostModelError, match="every candidate failed"):
        Calibration.of(np.array([1.0]), np.array([np.inf]))
