"""Sums that threads share: each adds up a part, where the result is too small to be shared and the sum is long."""

from __future__ import annotations

import math

from autotune.schedule import Schedule
from autotune.schedule.editor import Editor
from autotune.schedule.state import REGISTER
from autotune.search_spaces.sketch.contraction import Contraction, analysed
from autotune.search_spaces.sketch.rules import LEAST_DEPTH
from autotune.target import Target
from autotune.tensor.layout import Layout

MOST_PARTS = 4
"""Per thread: more only make more to add up."""


def in_parts(c: Contraction, target: Target) -> Contraction | None:
    """The contraction that has a part of the sum as one more axis; None where threads have enough without it."""
    count = _count(c, target)
    results = math.prod(a.extent for a in c.spatial)
    if target.num_threads == 1 or not count or count * results * target.vector_bits // 8 // c.lanes > target.l2_bytes:
        return None
    edit = Editor(c.schedule)
    a = c.reduce[c.deep]
    part = edit.rfactor(c.total, a.name, a.extent // count)
    return analysed(edit.schedule.cache_write(part), dict(c.layouts), f"{part}.c", part, target)


def added_up(schedule: Schedule, c: Contraction) -> Schedule:
    """The sum of the parts and what is done with it, one vector at a time.

    Args:
        schedule: in which the parts have their loops.
        c: the contraction without parts.
    """
    edit, out, total = Editor(schedule), c.output, c.total
    names = [a.name for a in edit.stage(out).stage.axes]
    sums = [a.name for a in edit.stage(total).stage.axes]
    over, lane = edit.split(out, names[c.last], c.lanes)
    around = [name for n, name in enumerate(names) if n != c.last]
    edit.order(out, [*around, over, lane])
    edit.vectorize(out, lane)
    loop = edit.fuse(out, [*around, over])
    edit.parallel(out, loop)
    edit.compute_at(total, out, loop, REGISTER)
    others = [n for n in range(len(sums)) if n != c.last]
    edit.layout(total, Layout.blocked(len(sums), [(c.last, c.lanes)], order=(*others, c.last)))
    (part,) = (a.name for a in edit.stage(total).stage.reduce_axes)
    edit.order(total, [*(sums[n] for n in others), part, sums[c.last]])
    edit.vectorize(total, sums[c.last])
    return edit.schedule


def _count(c: Contraction, target: Target) -> int:
    """The fewest parts that give all threads as many, of whole vectors and blocks; 0 where there are none."""
    a = c.reduce[c.deep]
    unit = math.lcm(c.lanes, max(a.block, 1))
    for count in range(target.num_threads, MOST_PARTS * target.num_threads + 1, target.num_threads):
        size = a.extent // count
        if a.extent % count == 0 and size % unit == 0 and size >= LEAST_DEPTH and not a.period:
            return count
    return 0
