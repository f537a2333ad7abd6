"""What it takes to copy operands into panels, in cycles and for many tilings at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from autotune.search_spaces.sketch.batch import PLACES, Batch
from autotune.search_spaces.sketch.contraction import Contraction
from autotune.search_spaces.sketch.factor import Factor
from autotune.search_spaces.sketch.instructions import interleaving
from autotune.search_spaces.sketch.tiling import BLOCK
from autotune.target import Target

Array = NDArray[np.float64]


def copying_cycles(
    c: Contraction, target: Target, b: Batch, folded: Array, rate_behind: Callable[[float], float]
) -> Array:
    """Cycles to copy operands into panels, on all threads together.

    Args:
        folded: products that one instruction adds up.
        rate_behind: bytes a cycle from where so many bytes stay.
    """
    each = np.arange(len(b.vector))
    total = np.zeros(len(b.vector))
    tiles = np.ceil(np.array([a.extent for a in c.spatial]) / b.elements())
    blocks = np.ceil(tiles / b.block)
    for k, f in enumerate(c.factors):
        size = float(np.prod(f.shape)) * f.bytes
        again, started = np.ones(len(b.vector)), np.zeros(len(b.vector), bool)
        of = np.array([a.name in f.axes() for a in c.spatial])
        for place in reversed(range(b.outer.shape[1])):
            axis = b.outer[:, place]
            turns = blocks[each, axis]
            started |= of[axis] & (turns > 1)
            again = np.where(started & ~of[axis], again * turns, again)
        times = np.where(b.packs[:, k] == PLACES.index(BLOCK), again, 1.0)
        cost = size / f.bytes * _moved(c, f, target, b, folded) + 2 * size / rate_behind(size)
        total += np.where(b.packs[:, k] > 0, cost * times, 0.0)
    return total


def _moved(c: Contraction, f: Factor, target: Target, b: Batch, folded: Array) -> Array:
    """Cycles to copy an element of a factor: with its neighbours in memory where they lie so in panels, or alone.

    In panels those are neighbours that an instruction folds, else those along vectors or, of what is broadcast, the
    rows of a tile.
    """
    moving = np.array([a.name in f.axes() for a in c.spatial])
    beside = np.array([f.stride(a.name) == 1 for a in c.spatial])
    rows = np.where(moving, b.tile, 0).argmax(1)
    each = np.where(beside[np.where(moving[b.vector], b.vector, rows)], 2.0 / b.lanes, 1.0)
    for n, x in enumerate(c.foldings, 1):
        name = c.reduce[x.axis].name
        if name in f.axes():
            move = 1 / target.core.loads + 1 / target.core.stores
            # A vector of several rows: each is loaded, one shuffle starts in a cycle, and all is stored.
            rows = x.dot.extent / target.core.loads + interleaving(x.dot) + 1 / target.core.stores
            turned = np.where(beside[b.vector], rows / (x.dot.extent * b.lanes), 1.0)
            each = np.where(b.dot == n, move / folded if f.stride(name) == 1 else turned, each)
    return np.asarray(each)
