"""RunTrace: what the runs of a session did and when, in Chrome's trace format (chrome://tracing, Perfetto)."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.errors import InputError

if TYPE_CHECKING:
    from autotune.runtime.threads import PlanTimes

MOST_EVENTS = 1_000_000
"""As many as ONNX Runtime keeps: a session that runs for days does not fill the memory."""


def named_track(track: int, name: str) -> dict[str, Any]:
    """The event that names a track. It has what all events have, for readers that take every one as a span."""
    return {"cat": "__metadata", "name": "thread_name", "ph": "M", "pid": os.getpid(), "tid": track, "ts": 0, "dur": 0,
            "args": {"name": name}}  # fmt: skip


class RunTrace:
    """Events of runs, from any thread, on a track for each thread. A trace that is full keeps its first events."""

    def __init__(self) -> None:
        self.start_ns = time.perf_counter_ns()
        self._events: list[dict[str, Any]] = []
        self._tracks: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()

    def now(self) -> float:
        """Microseconds since the beginning."""
        return (time.perf_counter_ns() - self.start_ns) * 1e-3

    def span(self, category: str, name: str, start: float, microseconds: float) -> None:
        """Something that took the calling thread a while, from `start` on."""
        self._span(0, category, name, start, microseconds)

    def kernels(self, labels: Iterable[str], start: float, times: PlanTimes) -> None:
        """The kernels of one run, one after the other from `start` on: on the calling thread's track as long as they
        took ("Node", as ONNX Runtime has them), on those of its helpers as long as these had to do ("Helper")."""
        begins = start + (np.cumsum(times.seconds) - times.seconds) * 1e6
        for label, begin, one, busy in zip(
            labels, begins.tolist(), (times.seconds * 1e6).tolist(), (times.busy * 1e6).tolist()
        ):
            self._span(0, "Node", label, begin, one)
            for helper, share in enumerate(busy[1:], 1):
                self._span(helper, "Helper", label, begin, share)

    def _span(self, helper: int, category: str, name: str, start: float, microseconds: float) -> None:
        if len(self._events) < MOST_EVENTS:
            self._events.append(
                {"cat": category, "name": name, "ph": "X", "pid": os.getpid(), "tid": self._track(helper), "ts": start,
                 "dur": microseconds, "args": {}}
            )  # fmt: skip

    def _track(self, helper: int) -> int:
        """Of the calling thread, or of one of the helpers that it has while it runs."""
        key = (threading.get_ident(), helper)
        with self._lock:
            return self._tracks.setdefault(key, len(self._tracks))

    def save(self, path: Path) -> None:
        """Write the events as a JSON list. Raises InputError when the file cannot be written."""
        callers = {caller: n for n, caller in enumerate(dict.fromkeys(caller for caller, _ in self._tracks))}
        names = [
            named_track(track, f"caller {callers[caller]}" + (f", helper {helper}" if helper else ""))
            for (caller, helper), track in self._tracks.items()
        ]
        try:
            path.write_text(json.dumps([*names, *self._events]))
        except OSError as error:
            raise InputError(f"cannot write the profile {path}: {error.strerror}") from error
