"""What one run at a time uses: made when it is first needed, so many at most, lent to whoever runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from autotune.runtime.process import process_number

T = TypeVar("T")


class Lender(Generic[T]):
    """Several threads may take and give at once. A process that was forked starts with none: threads do not survive.

    Args:
        make: makes one; what it raises, whoever takes meets.
        most: how many there are at most.
    """

    def __init__(self, make: Callable[[], T], most: int) -> None:
        self._make, self._most = make, most
        self._begin()

    def take(self) -> T:
        """A free one, a new one while there are few, or the next to become free."""
        if process_number() != self._process:
            self._begin()
        try:
            return self._free.pop()
        except IndexError:
            pass
        with self._returned:
            while self._made == self._most:
                self._waiting += 1
                try:
                    if self._free or self._returned.wait():
                        return self._free.pop()
                except IndexError:
                    continue  # somebody was faster
                finally:
                    self._waiting -= 1
            self._made += 1
        try:
            return self._make()
        except BaseException:
            with self._returned:
                self._made -= 1
            raise

    def give(self, one: T) -> None:
        """Back, for the next."""
        # Locks only when somebody waits: a list's append and pop are atomic, and this is on the path of every run.
        self._free.append(one)
        if self._waiting:
            with self._returned:
                self._returned.notify()

    def _begin(self) -> None:
        self._process = process_number()
        self._free: list[T] = []  # the last used comes first: its memory is in the caches
        self._made = self._waiting = 0
        self._returned = threading.Condition()
