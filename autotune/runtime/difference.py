"""How far answers are from others, relative to what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def max_error(found: Sequence[Array], wanted: Sequence[Array]) -> float:
    """Largest absolute difference of any output, relative to the range of that output's right values.

    Infinite where shapes differ or a value is not finite in one alone.
    """
    if len(found) != len(wanted):
        return float("inf")
    worst = 0.0
    for ours, right in zip(found, wanted, strict=True):
        if ours.shape != right.shape:
            return float("inf")
        a, b = ours.astype(np.float64), right.astype(np.float64)
        if not a.size or np.array_equal(a, b, equal_nan=True):
            continue
        span = float(np.ptp(b)) or float(np.abs(b).max()) or 1.0
        error = float(np.abs(a - b).max()) / span
        worst = max(worst, error) if np.isfinite(error) else float("inf")
    return worst
