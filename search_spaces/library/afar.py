"""Where constants come from when a kernel runs inside a model, and how early tiles ask for those that come late."""

from __future__ import annotations

from autotune.core import LINE
from autotune.target import Target

AHEAD = (0, 4, 8, 16, 32, 64)
ROOM_AHEAD = 4
"""What is asked for before it is used may take one of so many parts of the first-level cache."""
ROOM_AHEAD_OF_L2 = 16
"""The same of what the second cache has, which answers sooner than memory."""


def comes_from_afar(size: int, target: Target) -> bool:
    """Whether constants of so many bytes come from behind the core's own caches, which also hold what is multiplied
    with them; a model reads its other weights between two runs of a kernel."""
    return 2 * size > target.l2_bytes


def turns_ahead(rows: int, vectors: int, stream: bool, target: Target) -> int:
    """How many turns ahead a tile asks for panels: as many as there is room for, since memory takes long to answer, few
    where `stream` has brought them into the second cache.

    A single row only loads, which the CPU looks after itself.
    """
    lines = target.l1_bytes // ((ROOM_AHEAD_OF_L2 if stream else ROOM_AHEAD) * LINE)
    return max(n for n in AHEAD if n * vectors <= lines) if rows > 1 else 0
