"""Work that nobody waits for."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from autotune.compiler.background import Background


def test_one_thing_is_done_at_a_time_and_the_rest_is_not(caplog: pytest.LogCaptureFixture) -> None:
    background, go, done = Background(), threading.Event(), list[int]()

    def first() -> None:
        go.wait()
        done.append(1)

    def fails() -> None:
        raise ValueError("no")

    assert background.offer(first)
    assert background.is_busy and not background.offer(lambda: done.append(2))
    go.set()
    background.wait()
    assert done == [1] and background.offer(fails)
    background.wait()
    assert "failed" in caplog.text
    assert background.offer(lambda: done.append(3))
    background.wait()
    assert done == [1, 3]


def test_runs_wait_less_for_the_interpreter_meanwhile() -> None:
    usual, seen = sys.getswitchinterval(), list[float]()
    background = Background()
    background.offer(lambda: seen.append(sys.getswitchinterval()))
    background.wait()
    assert seen[0] < usual == sys.getswitchinterval()


@pytest.mark.parametrize(("usual", "given"), [(0, 10), (5, 15), (19, 19)])
def test_a_thread_gives_way_to_runs_of_a_process_that_is_nice_itself(usual: int, given: int) -> None:
    seen: list[int] = []

    def run() -> None:
        here = threading.get_native_id()
        if os.getpriority(os.PRIO_PROCESS, here) < usual:
            os.setpriority(os.PRIO_PROCESS, here, usual)
        seen.append(os.getpriority(os.PRIO_PROCESS, here))
        background = Background()
        background.offer(lambda: seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
        background.wait()

    runs = threading.Thread(target=run)  # nobody but root may take it back
    runs.start()
    runs.join()
    assert seen[1] == min(19, seen[0] + 10) and (seen[0] > usual or seen[1] == given)
