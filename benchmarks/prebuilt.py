"""Building first and timing in one go, so that a machine that others use, too, is held for as short as can be."""

from __future__ import annotations

import argparse
import fcntl
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from autotune.measure.failure import Failure
from autotune.measure.runner import Runner
from autotune.measure.types import BuildResult, MeasureInput

Turn = Callable[[], AbstractContextManager[None]]
"""Entered while kernels are timed."""


class Prebuilt:
    """A builder of what was built before (see `BuilderLike`)."""

    slots = 1

    def __init__(self, builds: Mapping[MeasureInput, BuildResult | Failure]) -> None:
        self._builds = builds

    def submit(self, candidate: MeasureInput) -> Future[BuildResult | Failure]:
        found: Future[BuildResult | Failure] = Future()
        found.set_result(self._builds[candidate])
        return found


def add_turns(options: argparse.ArgumentParser) -> None:
    """The options --lock and --real-time."""
    options.add_argument("--lock", type=Path, metavar="FILE", help="time only while holding the lock of this file")
    options.add_argument("--real-time", type=int, metavar="N", help="time at this priority, build at the usual one")


def add_cold(options: argparse.ArgumentParser) -> None:
    """The option --cold."""
    help_ = "of weights that runs go through, as those of a model do"
    options.add_argument("--cold", type=_mebibytes, default=0, metavar="MIB", help=help_)


def _mebibytes(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no number of MiB: give 0 or more")
    return int(text)


def turn_of(given: argparse.Namespace, runner: Runner) -> Turn:
    """Holds the lock of a file, as `flock FILE` does, and times in real time, as the options of `add_turns` say."""

    @contextmanager
    def turn() -> Iterator[None]:
        with _holding(given.lock) if given.lock else nullcontext(), real_time(given.real_time, runner.pids):
            yield

    return turn


@contextmanager
def _holding(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def real_time(priority: int | None, workers: Collection[int]) -> Iterator[None]:
    """This process and such workers at a real-time priority, so that others' programs wait and not the kernels.

    Args:
        priority: of SCHED_FIFO; None leaves all as it is.
    """
    if priority is None:
        yield
        return
    try:
        _schedule(os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, priority, workers)
        yield
    finally:
        _schedule(os.SCHED_OTHER, 0, workers)


def _schedule(policy: int, priority: int, workers: Collection[int]) -> None:
    for process in (os.getpid(), *workers):
        for thread in Path(f"/proc/{process}/task").glob("*"):
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))
