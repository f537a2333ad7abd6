"""What watches over a run of a loop whose steps the run decides: memory is refused before it is taken, and who waits
for one that may never end is told."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from autotune import machine
from autotune.errors import MemoryLimitError

_log = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds that a loop may take before somebody is told that nothing but its condition ends it."""

LATER = 4
"""How many times as long it takes until that is told again."""

SHARE = 0.5
"""Of the machine's memory: what one loop may take."""


@dataclass(frozen=True, slots=True)
class LoopLimit:
    """Memory that one loop may take.

    Attributes:
        nbytes: None where nothing is known that bounds it.
        whose: what bounds it, in words.
    """

    nbytes: int | None
    whose: str

    @staticmethod
    def of(max_memory: int | None) -> LoopLimit:
        """The session's limit or the machine's, whichever is less."""
        share = int(machine.memory_bytes() * SHARE) or None
        if max_memory is not None and (share is None or max_memory <= share):
            return LoopLimit(max_memory, "max_memory allows")
        return LoopLimit(share, f"one loop may have, {100 * SHARE:.0f} % of this machine's memory")


class LoopGuard:
    """Watches over one run of a loop.

    Args:
        label: of the loop.
        limit: of its memory.

    Attributes:
        step: that it is in.
        most: steps after which it is refused; None where it was said how many there are.
    """

    def __init__(self, label: str, limit: LoopLimit) -> None:
        self._label, self._limit = label, limit
        self._held = 0
        self._start = time.perf_counter()
        self._patience = PATIENCE
        self.step = 0
        self.most: int | None = None

    def look(self, step: int) -> None:
        """Between steps: who waits is told, once in a while, where nothing but a condition ends the loop."""
        self.step = step
        seconds = time.perf_counter() - self._start
        if seconds > self._patience and self.most is not None:
            self._patience = seconds * LATER
            _log.warning(
                "%s: still going on after %d steps in %.0f s; unless its condition ends it, it is refused after"
                " %d steps (max_loop_steps), %.0f s from now at this pace",
                self._label, step, seconds, self.most, seconds * (self.most - step) / max(step, 1),
            )  # fmt: skip

    def hold(self, step: int, nbytes: int) -> None:
        """Before a step: what is carried along and was collected. Raises as `take`."""
        self.step, self._held = step, 0
        self.take(nbytes)

    def take(self, nbytes: int) -> None:
        """Before the step takes so much more.

        Raises:
            MemoryLimitError: that is more than the loop may have.
        """
        self._held += nbytes
        most = self._limit.nbytes
        if most is not None and self._held > most:
            raise MemoryLimitError(
                f"{self._label}: in step {self.step} it needs {self._held} bytes for carried values, outputs and what"
                f" is computed, more than the {most} that {self._limit.whose}"
            )
