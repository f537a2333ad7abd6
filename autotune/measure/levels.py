"""How fast a machine was in each of the turns in which several kernels were timed, by what all of them took."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

STEPS = 10
"""Of the polish; a few are enough until nothing moves any more."""


def slowness(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """(turns,) how many times as long all kernels took in a turn as in a calm one, from (kernels, turns) seconds.

    A host that gives a virtual machine's core to others makes all kernels slower for seconds at a time, which no gauge
    sees; kernels that are timed in turn share that, and it says nothing about them. It is taken out by medians, of
    kernels and of turns by turns (Tukey, Exploratory Data Analysis, 1977: median polish): a turn in which few kernels
    were disturbed is not slow, and a kernel that was disturbed in few turns is not, either. Calm are the best quarter
    of the turns.

    Args:
        seconds: NaN where a kernel had no part in a turn; each shares one with another, as all do the first. Turns of
            fewer than two kernels tell nothing: 1.
    """
    shared = (~np.isnan(seconds)).sum(0) >= 2
    if shared.sum() < 2:
        return np.ones(seconds.shape[1])
    logs = np.log(seconds)
    levels = np.zeros(len(shared))
    for _ in range(STEPS):
        kernels = np.nanmedian((logs - levels)[:, shared], axis=1)
        levels = np.where(shared, np.nanmedian(logs - kernels[:, None], axis=0), 0.0)
    calm = np.quantile(levels[shared], 0.25, method="lower")
    return np.where(shared, np.exp(levels - calm), 1.0)
