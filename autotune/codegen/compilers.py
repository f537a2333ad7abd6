"""IR compiled on other cores, while Python writes the IR of the next kernel."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from autotune import machine
from autotune.codegen.jit import compile_ir
from autotune.codegen.kernel import CompileIr
from autotune.codegen.llvm_process import LlvmProcess, can_start

MOST = 2
"""Processes: LLVM takes up to twice as long for a kernel as Python does to write it, so that more would wait."""
FEW = 4
"""Kernels that LLVM compiles in about the time in which a process starts."""

Result = TypeVar("Result")


class Compilers:
    """Does what needs LLVM, in processes of its own as far as there are cores for them; `finish` does the rest.

    Args:
        count: pieces of work that will come, about.
    """

    def __init__(self, count: int) -> None:
        processes = min(machine.allowed_cores() - 1, MOST) if count > FEW and can_start() else 0
        self._threads = ThreadPoolExecutor(processes, "autotune-llvm") if processes else None
        self._waiting: deque[Callable[[CompileIr], None]] = deque()
        self._own = threading.local()
        self._processes: list[LlvmProcess] = []

    def submit(self, work: Callable[[CompileIr], Result]) -> Future[Result]:
        """What `work` gives when it is called with something like `compile_ir`."""
        future: Future[Result] = Future()

        def run(compile: CompileIr) -> None:
            try:
                future.set_result(work(compile))
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
                self._waiting.pop()(compile_ir)

    def __enter__(self) -> Compilers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.clear()
        if self._threads is not None:
            self._threads.shutdown()
        for process in self._processes:
            process.close()

    def _take(self) -> None:
        """On one of the threads: the next piece of work, unless `finish` was faster."""
        with contextlib.suppress(IndexError):
            self._waiting.popleft()(self._compiler())

    def _compiler(self) -> CompileIr:
        """This thread's process."""
        if not hasattr(self._own, "compile"):
            try:
                process = LlvmProcess()
            except OSError:
                self._own.compile = compile_ir
            else:
                self._processes.append(process)
                self._own.compile = process.compile
        found: CompileIr = self._own.compile
        return found
