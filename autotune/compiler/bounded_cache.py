"""A cache for expensive values that several threads ask for: each is made once, the oldest go when there are many."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

V = TypeVar("V")


@dataclass(eq=False, slots=True)
class _Entry(Generic[V]):
    """A value, once it is `done`; those who come earlier wait for the future."""

    future: Future[V]
    value: V | None = None
    done: bool = False


class BoundedCache(Generic[V]):
    """Keeps what was used last, within a number of entries and a number of bytes; the newest is always kept.

    Args:
        entries: how many at most.
        nbytes: how large together at most.
        size: bytes of values together, which may share some.
    """

    def __init__(self, entries: int, nbytes: int, size: Callable[[list[V]], int]) -> None:
        self._entries, self._nbytes, self._size = entries, nbytes, size
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, _Entry[V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def values(self) -> list[V]:
        """What is held, the longest unused first."""
        with self._lock:
            return [cast(V, entry.value) for entry in self._held.values() if entry.done]

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value under `key`. The first who asks makes it, without holding up other keys; an error is raised by
        everybody who waits for it, and not kept."""
        with self._lock:
            entry = self._held.get(key)
            mine = entry is None
            if entry is None:
                entry = self._held[key] = _Entry(Future())
            else:
                self._held.move_to_end(key)
                if entry.done:  # on the path of every run: a future's result takes another lock
                    return cast(V, entry.value)
        if mine:
            try:
                entry.value = make()
            except BaseException as error:
                with self._lock:
                    if self._held.get(key) is entry:
                        del self._held[key]
                entry.future.set_exception(error)
                raise
            entry.done = True
            entry.future.set_result(entry.value)
            self._shrink()
        return entry.future.result()

    def _shrink(self) -> None:
        with self._lock:
            ready = {key: cast(V, entry.value) for key, entry in self._held.items() if entry.done}
            for key in list(ready)[:-1]:
                if len(ready) <= self._entries and self._size(list(ready.values())) <= self._nbytes:
                    break
                del self._held[key], ready[key]
