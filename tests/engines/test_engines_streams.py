"""Streams: sessions that run at once, each on cores of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from autotune import machine
from autotune.engines.compare import compare
from autotune.engines.engine import Feeds
from autotune.engines.streams import Streams
from autotune.engines.turns import Percentiles, take_turn
from autotune.errors import TargetError
from autotune.runtime.executor import Array
from autotune.target import Target


class Witness:
    """Answers its number, once all of them have been called; knows where it was loaded and called."""

    name, version = "witness", "1"

    def __init__(self, number: int, together: threading.Barrier | None = None) -> None:
        self.number, self._together = number, together
        self.loaded_on, self.called_on = os.sched_getaffinity(0), set[int]()

    def run(self, feeds: Feeds) -> Sequence[Array]:
        self.called_on = os.sched_getaffinity(0)
        if self._together is not None:
            self._together.wait(timeout=30)
        return [np.array([self.number])]


def test_streams_run_at_once_each_where_it_was_loaded() -> None:
    cores = [(core,) for core in machine.affinity()[:1]] * 2
    together, made = threading.Barrier(2), []

    def load(number: int) -> Witness:
        made.append(Witness(number, together))
        return made[-1]

    streams = Streams(load, cores)
    found = streams.turn({}, 0.0)
    assert len(streams) == len(made) == len(found.calls) == 2
    assert [one.called_on for one in made] == [one.loaded_on for one in made] == [set(own) for own in cores]
    assert os.sched_getaffinity(0) == set(machine.affinity()), "the caller keeps its cores"


def test_the_first_stream_answers() -> None:
    assert Streams(Witness, [machine.affinity()] * 3).run({})[0] == [0]


def test_a_comparison_of_streams_counts_all_their_calls() -> None:
    streams = Streams(Witness, [machine.affinity()] * 2)
    found = compare([streams], {}, Target.parse("native -num-cores=1"), flops=10, rounds=1).results[0]
    assert len(found.calls) > 2
    assert found.throughput == pytest.approx(1 / found.samples[0])
    assert found.gflops == pytest.approx(10e-9 * found.throughput)
    assert found.seconds == pytest.approx(float(np.median(found.calls)))


def test_a_turn_lasts_as_long_as_asked_and_calls_once_at_least() -> None:
    assert len(take_turn(Witness(0), {}, 0.0).calls) == 1
    found = take_turn(Witness(0), {}, 0.01)
    assert sum(found.calls) >= 0.01
    assert found.rate == pytest.approx(len(found.calls) / sum(found.calls))


def test_percentiles() -> None:
    assert Percentiles.of(range(101)) == Percentiles(50.0, 90.0, 99.0)
    assert Percentiles.of([2.0]) == Percentiles(2.0, 2.0, 2.0)


def test_cores_are_shared_out_whole_and_once() -> None:
    (every,) = machine.core_sets(1)
    assert sorted(every) == list(machine.affinity())
    cores = len(machine.topology().cores)
    parts = machine.core_sets(cores)
    assert sorted(cpu for part in parts for cpu in part) == sorted(every) and all(parts)
    with pytest.raises(TargetError, match=f"{cores + 1} streams need as many cores; this process may use {cores}"):
        machine.core_sets(cores + 1)
