"""Where constants come from when a kernel runs inside a model."""

from __future__ import annotations

from autotune.target import Target


def comes_from_afar(size: int, target: Target) -> bool:
    """Whether constants of so many bytes come from behind the core's own caches, which also hold what is multiplied
    with them; a model reads its other weights between two runs of a kernel."""
    return 2 * size > target.l2_bytes
