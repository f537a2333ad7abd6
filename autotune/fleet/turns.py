"""Turns: one measurement at a time on a machine, whatever processes measure there, and no builds beside it.

Two files are locked (`flock`, so a process that dies gives up its locks). Who measures holds the gate meanwhile, so
that builds which begin later wait for it, and takes the floor once the builds under way have ended.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from autotune.errors import ClusterError


class Turns:
    """The turns of one machine, for all processes of one user."""

    def __init__(self, folder: Path | None = None) -> None:
        """
        Args:
            folder: with the files; by default the one for temporary files, with names that no other boot has.
        """
        boot = Path("/proc/sys/kernel/random/boot_id")
        mark = boot.read_text()[:8] if boot.exists() else ""
        stem = (folder or Path(tempfile.gettempdir())) / f"autotune-{os.getuid()}-{mark}"
        self._gate, self._floor = stem.with_name(f"{stem.name}.gate"), stem.with_name(f"{stem.name}.floor")

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Alone on the machine while the context lasts."""
        with _locked(self._gate, fcntl.LOCK_EX), _locked(self._floor, fcntl.LOCK_EX):
            yield

    @contextmanager
    def building(self) -> Iterator[None]:
        """Beside other builds only, while the context lasts."""
        with ExitStack() as floor:
            with _locked(self._gate, fcntl.LOCK_SH):
                floor.enter_context(_locked(self._floor, fcntl.LOCK_SH))
            yield


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ClusterError(f"cannot open {path}, by which measurements take turns: {error.strerror}") from error
    try:
        fcntl.flock(file, how)
        yield
    finally:
        os.close(file)
