"""One measurement at a time, whoever asks; builds beside builds, and not beside a measurement."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autotune.errors import ClusterError
from autotune.fleet.turns import Turns


def test_measurements_are_alone_and_builds_are_not(tmp_path: Path) -> None:
    lock = threading.Lock()
    measuring = building = most = 0

    def measure(_: int) -> None:
        nonlocal measuring
        with Turns(tmp_path).measuring():
            with lock:
                measuring += 1
                assert (measuring, building) == (1, 0)
            with lock:
                measuring -= 1

    def build(_: int) -> None:
        nonlocal building, most
        with Turns(tmp_path).building():
            with lock:
                building += 1
                most = max(most, building)
                assert measuring == 0
            with lock:
                building -= 1

    with ThreadPoolExecutor(8) as threads:
        for future in [threads.submit((measure, build, build)[number % 3], number) for number in range(90)]:
            future.result(60)
    gate = threading.Barrier(2, timeout=30)
    with ThreadPoolExecutor(2) as threads:

        def together() -> None:
            with Turns(tmp_path).building():
                gate.wait()

        for future in [threads.submit(together) for _ in range(2)]:
            future.result(60)


def test_a_build_that_comes_later_waits_for_a_measurement_that_waits(tmp_path: Path) -> None:
    order: list[str] = []
    entered, waiting = threading.Event(), threading.Event()
    turns = Turns(tmp_path)

    def first() -> None:
        with turns.building():
            entered.set()
            waiting.wait(30)
            order.append("first build")

    def measure() -> None:
        with turns.measuring():
            order.append("measured")

    def second() -> None:
        with turns.building():
            order.append("second build")

    threads = [threading.Thread(target=work) for work in (first, measure, second)]
    threads[0].start()
    entered.wait(30)
    threads[1].start()
    threads[1].join(0.2)  # it holds the gate by now
    threads[2].start()
    threads[2].join(0.2)
    waiting.set()
    for thread in threads:
        thread.join(30)
    assert order == ["first build", "measured", "second build"]


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    with Turns(tmp_path).building():
        pass
    for path in tmp_path.iterdir():
        path.unlink()
        path.symlink_to(os.devnull)
    with pytest.raises(ClusterError, match="by which measurements take turns"), Turns(tmp_path).measuring():
        pass
