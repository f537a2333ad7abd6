"""A Python of its own that loads what it will work with, and waits to be told what with; some start early.

To start one takes as long as to import what uses it: who knows that workers will be needed has them start meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# -I: no current directory, no PYTHON* variables; the parent's own sys.path is handed over instead.
# One thread per worker, set before NumPy is imported: BLAS and OpenMP pools would fight with the measured kernel.
_BOOT = """\
import json, os, sys
for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR"):
    os.environ[library + "_NUM_THREADS"] = "1"
start = json.loads(sys.argv[1])
sys.path[:] = start.pop("path")
from autotune.measure.child import main
main(**start)
"""


class Spawned:
    """The process, a socket to it, and the pipe that it prints into.

    Args:
        entry: `module:function`, see `child.main`.

    Raises:
        OSError: no process can be started.
    """

    def __init__(self, entry: str) -> None:
        self.entry = entry
        self.channel, theirs = socket.socketpair()
        with theirs:
            start = {
                "fd": theirs.fileno(),
                "parent_pid": os.getpid(),
                "entry": entry,
                "path": [folder or os.getcwd() for folder in sys.path],
            }
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-u", "-c", _BOOT, json.dumps(start)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        assert self._popen.stdout is not None
        self.output = self._popen.stdout

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Once it is reaped."""
        return self._popen.returncode

    def kill(self, grace: float = 0.0) -> int:
        """Kill the whole session and reap; returns the exit code. `grace`: seconds to die by itself."""
        deadline = time.monotonic() + grace
        # WNOWAIT leaves a zombie, whose id, and so the group's, cannot be taken by somebody else.
        while time.monotonic() < deadline and self._popen.returncode is None:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break
            time.sleep(0.005)
        if self._popen.returncode is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._popen.kill()  # between fork and setsid there is no group yet
            self._popen.wait()
        return int(self._popen.returncode)

    def close(self) -> None:
        """Close what leads there; what it printed last can be read until then."""
        self.channel.close()
        self.output.close()


_early: list[Spawned] = []
_lock = threading.Lock()


@contextmanager
def early(*entries: str) -> Iterator[None]:
    """Starts a process for each of the entries, for who needs one within this context; the others end with it."""
    mine: list[Spawned] = []
    try:
        with suppress(OSError):  # a head start is all that is lost: who needs one is told that none can be started
            for entry in entries:
                mine.append(Spawned(entry))
                with _lock:
                    _early.append(mine[-1])
        yield
    finally:
        for one in mine:
            with _lock:
                needless = one in _early
                if needless:
                    _early.remove(one)
            if needless:
                one.kill()
                one.close()


def spawned(entry: str) -> Spawned:
    """One that started early, if there is any for the entry; else a new one."""
    with _lock:
        for one in _early:
            if one.entry == entry:
                _early.remove(one)
                return one
    return Spawned(entry)
