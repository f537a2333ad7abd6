"""Streams: several sessions of one model at once, each on cores of its own, for throughput rather than latency."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from autotune.engines.engine import Array, Engine, Feeds
from autotune.engines.turns import Turn, take_turn


class Streams:
    """An engine that is several: all of them take their turn at the same time.

    A session is loaded, and called, on one Python thread that is pinned before, so that the threads which it starts
    have the same cores.

    Args:
        load: makes one session, given its number.
        cores: the logical CPUs of each stream.
    """

    def __init__(self, load: Callable[[int], Engine], cores: Sequence[Sequence[int]]) -> None:
        self._workers = [
            ThreadPoolExecutor(1, "autotune-stream", initializer=os.sched_setaffinity, initargs=(0, tuple(own)))
            for own in cores
        ]
        # One after the other: an engine that is being loaded may redirect the process's standard output.
        self._engines = [worker.submit(load, n).result() for n, worker in enumerate(self._workers)]
        self.name, self.version = self._engines[0].name, self._engines[0].version

    def __len__(self) -> int:
        return len(self._engines)

    def run(self, feeds: Feeds) -> Sequence[Array]:
        """The outputs of the first stream."""
        return self._workers[0].submit(self._engines[0].run, feeds).result()

    def turn(self, feeds: Feeds, seconds: float) -> Turn:
        """All streams call at once, for so long."""
        gate = threading.Barrier(len(self._engines))

        def one(engine: Engine) -> Turn:
            gate.wait()
            return take_turn(engine, feeds, seconds)

        pending = [worker.submit(one, engine) for worker, engine in zip(self._workers, self._engines, strict=True)]
        turns = [future.result() for future in pending]
        return Turn(tuple(call for turn in turns for call in turn.calls), sum(turn.rate for turn in turns))
