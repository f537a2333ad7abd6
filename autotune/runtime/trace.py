"""RunTrace: what the runs of a session did and when, in Chrome's trace format (chrome://tracing, Perfetto)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import InputError

MOST_EVENTS = 1_000_000
"""As many as ONNX Runtime keeps: a session that runs for days does not fill the memory."""


class RunTrace:
    """Events of runs, from any thread. A trace that is full keeps its first events."""

    def __init__(self) -> None:
        self.start_ns = time.perf_counter_ns()
        self._events: list[dict[str, Any]] = []

    def now(self) -> float:
        """Microseconds since the beginning."""
        return (time.perf_counter_ns() - self.start_ns) * 1e-3

    def span(self, category: str, name: str, start: float, microseconds: float) -> None:
        """Something that took a while, from `start` on."""
        if len(self._events) < MOST_EVENTS:
            self._events.append(
                {"cat": category, "name": name, "ph": "X", "pid": os.getpid(), "tid": 0, "ts": start,
                 "dur": microseconds, "args": {}}
            )  # fmt: skip

    def kernels(self, labels: Iterable[str], start: float, seconds: npt.NDArray[np.float64]) -> None:
        """The kernels of one run, one after the other from `start` on."""
        ends = np.cumsum(seconds) * 1e6 + start
        for label, end, one in zip(labels, ends.tolist(), (seconds * 1e6).tolist()):
            self.span("Node", label, end - one, one)

    def save(self, path: Path) -> None:
        """Write the events as a JSON list. Raises InputError when the file cannot be written."""
        try:
            path.write_text(json.dumps(self._events))
        except OSError as error:
            raise InputError(f"cannot write the profile {path}: {error.strerror}") from error
