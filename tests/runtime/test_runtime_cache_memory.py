"""Memory of caches: who appends first to the longest view writes behind it, others get their own."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np

from autotune.runtime.cache_memory import CacheMemories, CacheMemory
from autotune.runtime.form import ALIGN


def rows(count: int, value: float = 1.0) -> np.ndarray[Any, Any]:
    return np.full((1, 2, count, 3), value, np.float32)


def test_the_longest_view_is_gone_on_from_in_place() -> None:
    memories = CacheMemories()
    first = memories.with_rows(rows(2), 2, 1, 8)
    assert first.array.__array_interface__["data"][0] % ALIGN == 0
    np.testing.assert_array_equal(first.array[:, :, :2], rows(2))
    assert not first.array[:, :, 2:].any()
    view = first.rows(3)
    assert view.shape == (1, 2, 3, 3) and not view.flags.writeable
    assert memories.with_rows(view, 2, 2, 8) is first
    others = [memories.with_rows(view, 2, 1, 8), memories.with_rows(first.rows(5), 2, 1, 16),
              memories.with_rows(first.rows(5).copy(), 2, 1, 8), memories.with_rows(first.rows(5), 2, 4, 16),
              memories.with_rows(first.rows(5)[:, :1], 2, 1, 8)]  # fmt: skip
    assert all(other is not first for other in others)
    assert memories.with_rows(first.rows(5), 2, 3, 8) is first
    assert memories.with_rows(first.rows(8), 2, 1, 16) is not first


def test_memory_lives_as_long_as_somebody_has_a_view() -> None:
    memories = CacheMemories()
    made = memories.with_rows(rows(1), 2, 1, 4)
    gone, view = weakref.ref(made), made.rows(2)[:, 1:]
    del made
    gc.collect()
    assert isinstance(gone(), CacheMemory)
    del view
    gc.collect()
    assert gone() is None
