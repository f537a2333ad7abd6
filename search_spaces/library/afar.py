"""Where operands come from when a kernel runs inside a model, and how early tiles ask for those that come late."""

from __future__ import annotations

from autotune.core import FOLLOWED, LINE
from autotune.search_spaces.library.register_tile import Steps
from autotune.target import Target

AHEAD = (0, 4, 8, 16, 32, 64)
ROOM_AHEAD = 4
"""What is asked for before it is used may take one of so many parts of the first-level cache."""
ROOM_AHEAD_OF_L2 = 16
"""The same of what the second cache has, which answers sooner than memory."""
ROOM_AHEAD_OF_LATE = 8
"""The same of what so few tiles read that it may still be on its way to the second cache."""
ROOM_FOR_ASKING = 0.75
"""Share of a tile's time in which loads and requests may keep the load units busy."""
SELDOM = 8
"""Tiles that read a panel which are few enough for each to ask: the first waits longer than that takes the others."""
FEW_ROWS = 4
"""Rows of a tile that have so little to do with a line that several places of a panel, read at once, come faster than
one: more rows take 1.05 to 1.2 times as long with those. Of vectors of half a line twice as many."""
MOST_ROWS_ALONE = (9, 12)
"""Rows of a tile that alone reads a panel from memory, for which the CPU sees far enough ahead; and of one that folds
neighbours, which reads half as many lines. More take up to 1.6 times as long as two tiles that ask for the next."""
PARTS_OF_L2 = 8
"""What is asked for while something else is read again and again may take one of so many parts of the second cache: a
quarter was 1.01 to 1.07 times as slow for Winograd's tiles (a Zen 3 with 512 KiB)."""
TILES_AHEAD = 2
"""Tiles by which an image of more runs is asked for: one or four are as good within 5 %."""


def comes_from_afar(size: int, target: Target) -> bool:
    """Whether constants of so many bytes come from behind the core's own caches, which also hold what is multiplied
    with them; a model reads its other weights between two runs of a kernel."""
    return 2 * size > target.l2_bytes


def near(target: Target) -> int:
    """Bytes of a panel that stay in the second cache from when they are asked for until they are read."""
    return target.l2_bytes // PARTS_OF_L2


def is_lost_sight_of(size: int, runs: int, target: Target) -> bool:
    """Whether an image of so many bytes comes from behind the core's own caches, in more runs than the CPU follows."""
    return size > target.l2_bytes and runs > FOLLOWED


def reads_apart(rows: int, vectors: int, target: Target, times: int) -> bool:
    """Whether what a tile reads lies in as many places as it has vectors; see `turns_ahead`."""
    return times == 1 and vectors > 1 and rows <= FEW_ROWS * (8 * LINE // target.vector_bits)


def turns_ahead(rows: int, vectors: int, stream: bool, target: Target, steps: Steps, times: int) -> int:
    """How many turns ahead a tile asks for panels: as many as there is room for, since memory takes long to answer, few
    where `stream` has brought them into the second cache.

    A single row only loads, which the CPU looks after itself, and so it does where but one tile reads a panel: memory
    has no time to spare then, and requests take the place of what the CPU fetches ahead. Where many tiles read a panel,
    all of them would ask for what only the first has to wait for: they do so where loads leave room for it.

    Args:
        steps: how fast tiles step. `times`: how many of them read a panel, one after the other.
    """
    loads_and_requests = rows + 2 * vectors  # a request takes as long as a load
    crowded = steps.loading(rows * vectors, loads_and_requests) > ROOM_FOR_ASKING
    if rows == 1 or times == 1 or (times > SELDOM and crowded):
        return 0
    late = times <= SELDOM and target.vector_bits == 8 * LINE  # smaller vectors were slower so
    parts = (ROOM_AHEAD_OF_LATE if late else ROOM_AHEAD_OF_L2) if stream else ROOM_AHEAD
    lines = target.l1_bytes // (parts * LINE)
    return max(n for n in AHEAD if n * vectors <= lines)
