"""Panels of constants that are asked for while tiles read those before them: which these are, and whether they fit."""

from __future__ import annotations

import math
from typing import NamedTuple

from autotune.search_spaces.sketch.contraction import Contraction
from autotune.search_spaces.sketch.factor import Factor
from autotune.search_spaces.sketch.tiling import Tiling
from autotune.target import Target


class Part(NamedTuple):
    """What tiles read of a factor again and again before they go on to the next such part: its bytes, and how often."""

    bytes: int
    times: int


def stays_beside_the_next(c: Contraction, t: Tiling, target: Target) -> bool:
    """Whether the second cache holds what is read again and again beside what is asked for meanwhile."""
    parts = [part_read_again(c, t, f).bytes for f in c.streamed]
    return all(parts) and 2 * sum(parts) <= target.l2_bytes


def part_read_again(c: Contraction, t: Tiling, f: Factor) -> Part:
    """The part of a factor that a tiling reads again and again; 0 bytes, once, without one."""
    tiles = [-(-a.extent // t.elements(n)) for n, a in enumerate(c.spatial)]
    moving = [f.stride(a.name) != 0 for a in c.spatial]
    deep = c.reduce[c.deep]
    depth = t.depth or deep.extent
    terms = [depth if x is deep else x.extent for x in c.reduce if x.name in f.axes()]
    size = math.prod(terms) * f.bytes * math.prod(t.elements(n) for n in range(len(tiles)) if moving[n])
    inner = [(t.block[n], moving[n]) for n in t.inner]
    outer = [(-(-tiles[n] // t.block[n]), moving[n]) for n in t.outer]
    times = 1
    for turns, moves in reversed([*outer, (-(-deep.extent // depth), True), *inner]):
        if turns > 1 and moves and times > 1:
            return Part(size, times)
        size *= turns if moves else 1
        times *= 1 if moves else turns
    return Part(0, 1)
