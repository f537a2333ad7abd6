"""Work that nobody waits for, one thing at a time, on a thread that gives way to those of runs."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from autotune.runtime.process import process_number

_log = logging.getLogger(__name__)

GIVES_WAY = 10
"""What is added to the nice value of the thread: a process that is nice itself has threads that still give way."""

HANDS_OVER = 5e-4
"""Seconds until the thread hands Python's lock to a run that waits for it, a tenth of what is usual: a run waits behind
each of its calls of compiled code."""


class Background:
    """At most one piece of work at a time; what is asked for meanwhile is not done, and asked for again."""

    def __init__(self) -> None:
        self._process = process_number()
        self._workers: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._running is not None and not self._running.done() and self._process == process_number()

    def offer(self, work: Callable[[], None]) -> bool:
        """Do this unless something is being done; whether it will be. Errors are logged."""
        if self.is_busy:
            return False
        if self._workers is None or self._process != process_number():  # threads do not survive a fork
            self._process = process_number()
            self._workers = ThreadPoolExecutor(1, "autotune-shapes", initializer=_give_way)
        self._running = self._workers.submit(_logged, work)
        return True

    def wait(self) -> None:
        """Until what is being done is done."""
        if self._running is not None and self._process == process_number():
            self._running.result()


def _give_way() -> None:
    with contextlib.suppress(OSError):
        os.sched_setscheduler(threading.get_native_id(), os.SCHED_OTHER, os.sched_param(0))  # runs may be real-time
        usual = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), usual + GIVES_WAY)  # 19 is the most, and is taken


@contextlib.contextmanager
def _handing_over() -> Iterator[None]:
    """All threads hand Python's lock over sooner, meanwhile."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, HANDS_OVER))
    sooner = sys.getswitchinterval()
    try:
        yield
    finally:
        if sys.getswitchinterval() == sooner:  # else somebody else has changed it, and will change it back
            sys.setswitchinterval(before)


def _logged(work: Callable[[], None]) -> None:
    try:
        with _handing_over():
            work()
    except RuntimeError as error:  # the interpreter ends, and lets nobody begin anything
        if "shutdown" not in str(error):
            _log.exception("work in the background failed")
    except Exception:  # noqa: BLE001  nobody waits for it: the run that needs it meets the error itself
        _log.exception("work in the background failed")
