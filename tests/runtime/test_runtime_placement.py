"""Where threads and pages go, on a machine that claims to have nodes; the CPUs are this one's own."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
import pytest

from autotune import machine
from autotune.runtime.placement import current_cpu, first_touch
from autotune.runtime.threads import ThreadPool
from autotune.topology import Cpu, Topology


def masks_of(pool: ThreadPool) -> dict[int, set[int]]:
    """On which CPUs each thread of a pool may run."""
    found: dict[int, set[int]] = {}

    def look(_: int, thread: int, threads: int) -> None:
        found[thread] = os.sched_getaffinity(0)

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(look)
    pool.run_function(ctypes.cast(function, ctypes.c_void_p).value or 0)
    return found


def test_helpers_run_where_the_topology_says_and_the_caller_where_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.sched_getaffinity(0)
    first, absent = min(allowed), 1000  # which is a second thread of the first core, and a core that went offline
    cpus = (Cpu(first, first), Cpu(absent, first), Cpu(absent + 1, absent + 1))
    monkeypatch.setattr(machine, "topology", lambda *_: Topology(cpus))
    with ThreadPool(2) as pool:
        assert masks_of(pool) == {0: allowed, 1: {first}}
    monkeypatch.setattr(machine, "topology", lambda *_: Topology(cpus[2:]))
    with ThreadPool(2) as pool:
        assert masks_of(pool) == {0: allowed, 1: allowed}


def test_pages_are_touched_from_each_node_and_the_thread_comes_back() -> None:
    allowed = os.sched_getaffinity(0)
    memory = np.full(1 << 16, 7, np.uint8)
    first_touch(memory, None)
    first_touch(memory, [sorted(allowed)] * 2)
    assert (memory == 7).all(), "one node: nothing to do"
    first_touch(memory, [[min(allowed)], [*sorted(allowed), 1000]])
    assert (memory[:: 1 << 12] == 0).all()
    first_touch(memory, [[min(allowed)], [1000]])
    assert os.sched_getaffinity(0) == allowed


def test_a_thread_runs_on_a_cpu_that_it_may_use() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(current_cpu()))
    thread.start()
    thread.join()
    assert found[0] in os.sched_getaffinity(0)
