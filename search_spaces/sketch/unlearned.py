"""What is not left to models that learned from kernels by themselves, whose weights caches held: costs as they say, but
for tilings about which they are known to err. The search tries those, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autotune.search_spaces.library.afar import AHEAD, MOST_ROWS_ALONE
from autotune.search_spaces.sketch.batch import Batch
from autotune.search_spaces.sketch.contraction import Contraction
from autotune.search_spaces.sketch.foresee import Cost

IDLE = 100.0
"""More than any two tilings are apart: log(best / seconds) of an octave of idle threads."""
IN_PARTS = 0.1
"""log(best / seconds) that a sum in parts has to promise over one that is not: models expect up to so much of it where
there is nothing to gain. They count what comes from the second cache, which a CPU fetches ahead while it goes on, and
hardly that tiles are stored and loaded again between parts, and that weights from memory come in bursts."""


def as_asking(cost: Cost) -> Cost:
    """What is expected of tilings that ask for the panels to come."""
    return lambda batch: cost(replace(batch, ahead=np.full_like(batch.ahead, AHEAD[1])))


def unless_waiting(cost: Cost, c: Contraction) -> Cost:
    """With tilings last of which a tall tile alone reads a panel, which nobody asks for (`turns_ahead`): terms are so
    long that the CPU does not see far enough ahead. Two lower tiles ask for the next panel meanwhile."""
    still = [n for n, a in enumerate(c.spatial) if all(f.stride(a.name) == 0 for f in c.streamed)]
    ends = np.array([c.spatial[n].extent for n in still])

    def slower(batch: Batch) -> NDArray[np.float64]:
        alone = (batch.elements()[:, still] >= ends).all(axis=1)
        rows = np.where(batch.along(), 1, batch.tile).prod(axis=1)  # those of matrices of their own, too
        tall = rows > np.where(batch.dot > 0, MOST_ROWS_ALONE[1], MOST_ROWS_ALONE[0])
        return np.asarray(cost(batch) + IDLE * (alone & tall & (batch.upright < 0)))

    return slower


def unless_in_parts(cost: Cost) -> Cost:
    """With sums in parts behind others of which a model that has learned expects nearly as much; tiles of matrix
    registers have lessons of their own."""
    return lambda batch: np.asarray(cost(batch) + IN_PARTS * ((batch.depth > 0) & (batch.upright < 0)))
