"""Work on other cores, while Python is busy here: IR that LLVM compiles, schedules that are to be chosen."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from autotune import machine
from autotune.codegen.helper import Helper, can_start

MOST = 2
"""Processes: LLVM takes up to twice as long for a kernel as Python does to write it, so that more would wait."""
FEW = 4
"""Kernels that LLVM compiles in about the time in which a process starts."""

Result = TypeVar("Result")


class Beside:
    """Has work done in processes of its own as far as there are cores for them; `finish` does the rest here."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: deque[Callable[[Helper | None], None]] = deque()
        self._own = threading.local()
        self._helpers: list[Helper] = []

    def expect(self, count: int) -> None:
        """So many pieces of work will come, about: where they are few, no process is started for them."""
        processes = min(machine.allowed_cores() - 1, MOST) if count > FEW and can_start() else 0
        if processes and self._threads is None:
            self._threads = ThreadPoolExecutor(processes, "autotune-beside")

    def submit(self, work: Callable[[Helper | None], Result]) -> Future[Result]:
        """What `work` gives when it is called with the process that is to help it, None where it is done here."""
        future: Future[Result] = Future()

        def run(helper: Helper | None) -> None:
            try:
                future.set_result(work(helper))
            except Exception as error:  # noqa: BLE001  who asks for the result gets it
                future.set_exception(error)

        self._waiting.append(run)
        if self._threads is not None:
            self._threads.submit(self._take)
        return future

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
        self._waiting.clear()
        if self._threads is not None:
            self._threads.shutdown()
        for helper in self._helpers:
            helper.close()

    def _take(self) -> None:
        """On one of the threads: the next piece of work, unless `finish` was faster."""
        if self._waiting:
            helper = self._helper()
            with contextlib.suppress(IndexError):
                self._waiting.popleft()(helper)

    def _helper(self) -> Helper | None:
        """This thread's process."""
        if not hasattr(self._own, "helper"):
            self._own.helper = None
            with contextlib.suppress(OSError, EOFError):
                helper = Helper()
                self._helpers.append(helper)
                helper.wait()  # meanwhile others go on with what there is to do
                self._own.helper = helper
        found: Helper | None = self._own.helper
        return found
