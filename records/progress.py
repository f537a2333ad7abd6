"""Progress: a word about how far a long reading is, once it has taken a second, and then now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_SECONDS = 1.0
LATER_SECONDS = 5.0

Say = Callable[[str], None]
"""Takes one line for people."""


def silent(line: str) -> None:
    """Says nothing."""


class Progress:
    """Called with how much is done, of `total`."""

    def __init__(self, say: Say, what: str, total: int) -> None:
        self._say, self._what, self._total = say, what, total
        self._next = time.monotonic() + FIRST_SECONDS

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + LATER_SECONDS
            self._say(f"{self._what}: {100 * done / max(self._total, 1):.0f} %")
