"""Building first and timing in one go, so that a machine that others use, too, is held for as short as can be."""

from __future__ import annotations

import argparse
import fcntl
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from autotune.measure.failure import Failure
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


def add_lock(options: argparse.ArgumentParser) -> None:
    """The option --lock."""
    options.add_argument("--lock", type=Path, metavar="FILE", help="time only while holding the lock of this file")


def turn_of(lock: Path | None) -> Turn:
    """Holds the lock of a file, as `flock FILE` does; without one, whoever comes may time."""
    return nullcontext if lock is None else lambda: _holding(lock)


@contextmanager
def _holding(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
