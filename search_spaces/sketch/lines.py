"""Cache lines: which of them the vectors of a tile touch, and how tiles that follow one another write them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autotune.core import LINE
from autotune.search_spaces.sketch.batch import Batch, Flags
from autotune.search_spaces.sketch.contraction import Contraction
from autotune.search_spaces.sketch.factor import Factor

Array = NDArray[np.float64]


def torn_loads(c: Contraction, b: Batch, packs: Flags) -> Array:
    """Loads of a step of a tile that touch a second line, on average over where its vectors begin.

    Args:
        packs: per tiling and factor, whether it lies in panels, which begin with a line.
    """
    total = np.zeros(len(b.vector))
    for k, f in enumerate(c.reads):
        moves = np.array([a.name in f.axes() for a in c.spatial])
        loads = np.where(moves[None, :], b.tile, 1).prod(1)
        for n, lanes in set(zip(b.vector.tolist(), b.lanes.tolist())):
            if f.stride(c.spatial[n].name) == 1:
                chosen = (b.vector == n) & (b.lanes == lanes) & ~packs[:, k]
                total += np.where(chosen, loads * torn(c, f, n, lanes * f.bytes), 0.0)
    return total


def torn(c: Contraction, f: Factor, vector: int, size: int) -> float:
    """Share of the loads of so many bytes that lie across two lines.

    A vector begins at any multiple of the bytes that divide all steps of what it is read by.

    Args:
        vector: number of the axis along which it lies.
    """
    others = [a.name for n, a in enumerate(c.spatial) if n != vector and a.extent > 1]
    others += [a.name for a in c.reduce if a.extent > 1]
    steps = [f.bytes * (f.stride(name) or 0) for name in others]
    own = f.dimension(c.spatial[vector].name)
    first = f.starts[own] * f.bytes if own is not None else 0
    even = math.gcd(LINE, size, first, *steps)
    return max(size - even, 0) / LINE


def written(c: Contraction, b: Batch) -> tuple[Array, Array]:
    """(octaves of lines that a row of a tile writes, negative where it writes a part of one;
    whether the tile that follows goes on where this one ends)."""
    rows = np.arange(len(b.vector))
    extents = np.array([a.extent for a in c.spatial])
    elements = b.elements()
    tiles = -(-extents // elements)
    length = np.minimum(elements[:, c.last], extents[c.last]) * c.stored
    joined, found = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    for order, turns in ((b.inner, np.minimum(b.block, tiles)), (b.outer, -(-tiles // b.block))):
        for place in reversed(range(order.shape[1])):
            axis = order[:, place]
            moving = ~found & (turns[rows, axis] > 1)
            joined |= moving & (axis == c.last)
            found |= moving
    return np.log2(length / LINE), joined * 1.0
