"""Large transposes in blocks of tiles: lines and pages of both sides are used up while they are near."""

from __future__ import annotations

import math

from autotune.schedule import Schedule
from autotune.schedule.state import Split
from autotune.target import Target

NEAR = (16, 4)  # tiles, and vectors along them, in a block


def near(
    schedule: Schedule, root: str, rows: list[str], tiles: str, vectors: str, target: Target
) -> tuple[Schedule, list[str]]:
    """(schedule, rows), unchanged where the transpose is small or its tiles are not all whole.

    Args:
        schedule: with the loops of `root` cut into tiles.
        root: the stage that reads along another axis than it writes.
        rows: its loops but those inside a tile, in the order of its memory.
        tiles: that over the tiles along what is read contiguously.
        vectors: that over the vectors along what is written contiguously.
        target: whose second-level cache says what is large.
    """
    s = schedule.state.stage(root)
    moved = math.prod(a.extent for a in s.stage.axes) * sum(t.dtype.bytes for t in s.stage.outputs)
    cut = {r.outer: r.extent % r.factor == 0 for r in s.relations if isinstance(r, Split)}
    sizes = {loop: math.gcd(s.loop(loop).extent, most) for loop, most in zip((tiles, vectors), NEAR) if loop in rows}
    whole = len(sizes) == 2 and cut.get(tiles) and cut.get(vectors) and 2 * sizes[tiles] >= NEAR[0]
    if moved <= target.l2_bytes or not whole:
        return schedule, rows
    for loop, size in sizes.items():
        schedule = schedule.split(root, loop, size)
    outer = [f"{x}.0" if x in sizes else x for x in rows]
    return schedule, [*outer, f"{vectors}.1", f"{tiles}.1"]
