"""What compiling leaves free in the heap is no longer resident; cycles are looked for when it is over."""

from __future__ import annotations

import ctypes
import gc
import re
from pathlib import Path

import pytest

from autotune.compiler.heap import trim, without_collector


def resident() -> int:
    """Bytes of anonymous memory of this process that is in RAM."""
    found = re.search(r"^RssAnon:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_free_pages_between_what_stays_go_back() -> None:
    blocks = [bytes(10_000) for _ in range(6400)]  # too small to be mapped on their own
    kept = blocks[::640]
    del blocks
    before = resident()
    trim()
    assert before - resident() > 32 << 20 and len(kept) == 10


def test_other_c_libraries_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    trim()


def test_the_collector_is_as_it_was_afterwards() -> None:
    assert gc.isenabled()
    with without_collector():
        with without_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_is_left_is_old_afterwards() -> None:
    with without_collector():
        left = [[n] for n in range(100_000)]
    assert gc.get_count()[0] < 1000  # it is not among the young, all of which the next collection looks at
    assert gc.get_freeze_count() == 0 and len(left) == 100_000


def test_objects_that_somebody_has_set_aside_stay_there() -> None:
    gc.freeze()
    try:
        aside = gc.get_freeze_count()
        with without_collector():
            pass
        assert gc.get_freeze_count() >= aside - 100
    finally:
        gc.unfreeze()
