"""Work on other cores, while Python is busy here: IR that LLVM compiles, schedules that are to be chosen."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from autotune import machine
from autotune.codegen.helper import Helper, can_start

MOST = 2
"""Processes: LLVM takes up to twice as long for a kernel as Python does to write it, so that more would wait."""
FEW = 4
"""Kernels that LLVM compiles in about the time in which a process starts."""
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
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: deque[Callable[[Helper | None], None]] = deque()
        self._own = threading.local()
        self._helpers: list[Helper] = []
        self._turn: Iterator[Helper | None] = iter(())

    def expect(self, count: int) -> None:
        """So many pieces of work will come: processes start for them, where they are more than a few."""
        if count > FEW:
            self.start()

    def start(self) -> None:
        """Start processes, if there are cores for them."""
        processes = min(machine.allowed_cores() - 1, MOST) if can_start() else 0
        if processes and self._threads is None:
            # Here, not on the threads: each would wait for Python's lock again and again.
            with contextlib.suppress(OSError):
                for _ in range(processes):
                    self._helpers.append(Helper(self._imports))
            self._turn = itertools.cycle(self._helpers or [None])
            self._threads = ThreadPoolExecutor(AHEAD * processes, "autotune-beside")

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
        for helper in tuple(self._helpers):
            if not helper.started:  # nobody needs it any more
                helper.close()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
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
                helper = next(self._turn)
                if helper is not None:
                    helper.wait()  # meanwhile others go on with what there is to do
                self._own.helper = helper
        found: Helper | None = self._own.helper
        return found
