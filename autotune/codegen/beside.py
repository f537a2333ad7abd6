"""Work on other cores, while Python is busy here: IR that LLVM compiles, schedules that are to be chosen."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from autotune import machine
from autotune.codegen.helper import Helper, can_start

EARLY = 2
"""Processes that start before it is known whether there is anything to do: mostly there is little."""
MOST = 6
"""Processes, however much there is to do: each takes the memory of a Python that has loaded LLVM."""
FEW = 4
"""Pieces of work, each about a kernel, that are done in the time in which a process starts."""
AHEAD = 2
"""Pieces of work that a process is given at a time: Python here, which is busy, may take long to hand it the next."""

Result = TypeVar("Result")


class Beside:
    """Has work done in processes of its own as far as there are cores for them; `finish` does the rest here.

    Args:
        imports: modules that the processes load as soon as they start, since they will be asked for.
    """

    def __init__(self, imports: Sequence[str] = ()) -> None:
        self._imports = tuple(imports)
        self._helpers: list[Helper] = []
        self._threads: list[threading.Thread] = []
        self._waiting: deque[Callable[[Helper | None], None]] = deque()
        self._perhaps: deque[tuple[Callable[[Helper | None], None], Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._ended = False

    def expect(self, count: int) -> None:
        """So many pieces of work will come: processes start for them, where they are more than a few."""
        if count > FEW:
            self._start(max(EARLY, count // FEW))

    def start(self) -> None:
        """Start processes, if there are cores for them."""
        self._start(EARLY)

    def submit(self, work: Callable[[Helper | None], Result]) -> Future[Result]:
        """What `work` gives when it is called with the process that is to help it, None where it is done here."""
        run, future = _promised(work)
        with self._changed:
            self._waiting.append(run)
            self._changed.notify()
        return future

    def perhaps(self, work: Callable[[Helper | None], Result]) -> Future[Result]:
        """`submit` of what may turn out to be needed: only a process that has nothing else to do begins it."""
        run, future = _promised(work)
        with self._changed:
            self._perhaps.append((run, future))
            self._changed.notify()
        return future

    def settle(self) -> None:
        """It is known what is needed: of `perhaps`, what nobody has begun is cancelled."""
        with self._changed:
            for _, future in self._perhaps:
                future.cancel()
            self._perhaps.clear()

    def finish(self) -> None:
        """Do here what nobody has begun: the last first, since others go from the front."""
        with contextlib.suppress(IndexError):
            while True:
                self._waiting.pop()(None)

    def __enter__(self) -> Beside:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._waiting.clear()
            self._perhaps.clear()
            self._ended = True
            self._changed.notify_all()
        for helper in self._helpers:
            if not helper.started:  # nobody needs it any more
                helper.close()
        for thread in self._threads:
            thread.join()
        for helper in self._helpers:
            helper.close()

    def _start(self, wanted: int) -> None:
        """Have so many processes, or as many as there are cores for."""
        room = min(machine.allowed_cores() - 1, MOST) if can_start() else 0
        # Here, not on the threads: each would wait for Python's lock again and again.
        with contextlib.suppress(OSError, RuntimeError):  # no more processes, no more threads: the rest is done here
            while len(self._helpers) < min(wanted, room):
                self._helpers.append(helper := Helper(self._imports))
                for _ in range(AHEAD):
                    thread = threading.Thread(target=self._serve, args=(helper,), name="autotune-beside", daemon=True)
                    thread.start()
                    self._threads.append(thread)

    def _serve(self, helper: Helper) -> None:
        """On one of a process's threads: give it work until the end."""
        with contextlib.suppress(OSError, EOFError):  # a process that is no more leaves the work to its threads
            helper.wait()
        while (work := self._next()) is not None:
            work(helper)

    def _next(self) -> Callable[[Helper | None], None] | None:
        """What has waited longest, as soon as something does, what may be needed behind all else; None at the end."""
        with self._changed:
            while not self._ended:
                with contextlib.suppress(IndexError):  # `finish` may be faster
                    return self._waiting.popleft()
                if self._perhaps:
                    return self._perhaps.popleft()[0]
                self._changed.wait()
        return None


def _promised(work: Callable[[Helper | None], Result]) -> tuple[Callable[[Helper | None], None], Future[Result]]:
    """What does the work, and what holds its result then."""
    future: Future[Result] = Future()

    def run(helper: Helper | None) -> None:
        try:
            future.set_result(work(helper))
        except Exception as error:  # noqa: BLE001  who asks for the result gets it
            future.set_exception(error)

    return run, future
