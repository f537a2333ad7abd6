"""Health: which workers of a cluster are set aside for a while, and why.

A runner is set aside when half of its last trials were disturbed, when its FMA probe never gets near what others for
the same target reach, or when it breaks or answers nonsense. It comes back after a while, which is twice as long each
time. Meanwhile it gets work only when nobody else is left; what a slow one measures then is marked, as the runner
itself marks what was disturbed.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

WINDOW = 8
"""Trials by which a runner is judged."""
ENOUGH = 3
"""Trials before its probe is held against the others'."""
SLOW = 0.85
"""Of the best probe of another runner for the same target: less is another machine, or one that others use."""
FIRST_SECONDS = 30.0
"""How long a worker is set aside for the first time."""


@dataclass(slots=True)
class _Record:
    group: str = ""
    disturbed: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    probe: float = 0.0
    until: float = -math.inf
    seconds: float = FIRST_SECONDS
    reason: str = ""
    slow: bool = False


class Health:
    """What is known of the workers, by address. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, _Record] = {}

    def observe(self, address: str, group: str, probe: float, disturbed: bool) -> str:
        """A trial of a runner for the target `group`; why it is set aside now, empty when it is not."""
        with self._lock:
            record = self._records.setdefault(address, _Record())
            record.group, record.probe = group, max(record.probe, probe)
            record.disturbed.append(disturbed)
            best = max(other.probe for other in self._records.values() if other.group == group)
            record.slow = len(record.disturbed) >= ENOUGH and record.probe < SLOW * best
            if record.until > self._clock():
                return ""
            trials, bad = len(record.disturbed), sum(record.disturbed)
            if trials == WINDOW and 2 * bad >= trials:
                return self._set_aside(record, f"{bad} of its last {trials} trials were disturbed")
            if record.slow:
                reason = f"it reaches {record.probe:.0f} GFLOP/s on one core where another reaches {best:.0f}"
                return self._set_aside(record, reason)
            return ""

    def blame(self, address: str, reason: str) -> None:
        """Sets a worker aside that broke, hung, or answered what is no result."""
        with self._lock:
            self._set_aside(self._records.setdefault(address, _Record()), reason)

    def slow(self, address: str) -> bool:
        """Whether a runner does not reach what another one for the same target does."""
        with self._lock:
            return address in self._records and self._records[address].slow

    def aside(self, address: str) -> str:
        """Why a worker is set aside; empty when it is not."""
        with self._lock:
            record = self._records.get(address)
            return record.reason if record is not None and record.until > self._clock() else ""

    def good(self, addresses: Collection[str]) -> list[str]:
        """Those that are not set aside; all of them when nobody else is left."""
        return [address for address in addresses if not self.aside(address)] or list(addresses)

    def _set_aside(self, record: _Record, reason: str) -> str:
        record.until, record.reason = self._clock() + record.seconds, reason
        record.seconds *= 2
        record.disturbed.clear()
        return reason
