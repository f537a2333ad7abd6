"""SharedCores: builders and a runner that together never use more cores than there are.

A kernel that is being timed has its cores to itself; all others build. A core that becomes free goes to a kernel that
waits to be timed, for few results are worth more than many builds, and else to the next build: none is idle while
there is work for it.

Where most kernels turn out to be disturbed beside builds, nothing is built while one is timed. The cores of a virtual
machine are often the two hardware threads of one: nothing that the system tells shows it, but all that runs on one
slows the other down. Where more than half as many are disturbed then, too, it was somebody else, and builds go on; so
they do after some kernels that were not, because it may have been somebody else who is gone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

Result = TypeVar("Result")

LATELY = 16
"""Kernels timed beside builds, of which more than half are disturbed where builds are to wait; and timed alone, of
which more than half as many are where that has not helped."""
AGAIN = 32
"""Kernels timed alone until it is tried whether builds still disturb: each of them costs a core."""


@dataclass(slots=True, eq=False)
class _Work:
    """`start` begins it; what it gives is passed on to `result`, which is for whoever asked."""

    start: Callable[[], Future[Any]]
    result: Future[Any]


class SharedCores:
    """
    Args:
        cores: how many there are.
        threads: cores that a kernel has while it is timed.
        builders: how many candidates may be built at the same time; each has one core.
        runners: how many kernels may be timed at the same time.
    """

    def __init__(self, cores: int, threads: int, builders: int, runners: int = 1) -> None:
        self._lock = threading.RLock()  # what begins may have ended at once, in this thread
        self._cores = self._free = max(cores, threads)
        self._threads, self._builders, self._runners = threads, builders, runners
        self._beside, self._alone = threads, False  # what a kernel has beside builds; whether it has all instead
        self._share_beside = 1.0  # of kernels beside builds, what was disturbed when builds began to wait
        self._in_vain = False  # they waited, which did not help
        self._left = 0  # kernels to be timed alone
        self._disturbed: deque[bool] = deque(maxlen=LATELY)
        self._runs: deque[_Work] = deque()
        self._builds: deque[_Work] = deque()

    def build(self, start: Callable[[], Future[Result]]) -> Future[Result]:
        """Begins a build as soon as it may; at once back."""
        return self._queue(self._builds, start)

    def run(self, start: Callable[[], Future[Result]]) -> Future[Result]:
        """Begins to time a kernel as soon as it may; at once back."""
        return self._queue(self._runs, start)

    def learn(self, disturbed: bool) -> None:
        """Takes it into account how a kernel's timing went."""
        with self._lock:
            self._disturbed.append(disturbed)
            self._left -= 1
            share = sum(self._disturbed) / LATELY
            many = share > (self._share_beside / 2 if self._alone else 1 / 2) and not self._in_vain
            if many or (self._alone and not self._left):
                if not self._alone:
                    self._share_beside = share
                self._in_vain = many and self._alone
                self._alone, self._left = not self._alone, AGAIN
                self._threads = self._cores if self._alone else self._beside
                self._disturbed.clear()

    def _queue(self, works: deque[_Work], start: Callable[[], Future[Result]]) -> Future[Result]:
        result: Future[Result] = Future()
        with self._lock:
            works.append(_Work(start, result))
        self._begin()
        return result

    def _begin(self) -> None:
        with self._lock:
            while self._runs and self._runners and self._free >= self._threads:
                self._go(self._runs.popleft(), self._threads, runners=1)
            while self._builds and not (self._runs and self._runners) and self._free and self._builders:
                self._go(self._builds.popleft(), 1, builders=1)

    def _go(self, work: _Work, cores: int, *, runners: int = 0, builders: int = 0) -> None:
        if not work.result.set_running_or_notify_cancel():
            return  # nobody waits for it any more
        self._free -= cores
        self._runners -= runners
        self._builders -= builders

        def end(done: Future[Any] | None, error: BaseException | None) -> None:
            with self._lock:
                self._free += cores
                self._runners += runners
                self._builders += builders
            if error is not None:
                work.result.set_exception(error)
            elif done is not None:
                work.result.set_result(done.result())
            self._begin()

        try:
            begun = work.start()
        except Exception as error:  # noqa: BLE001 (whoever waits for the future gets it)
            end(None, error)
            return
        begun.add_done_callback(lambda done: end(done, done.exception()))
