"""Memory of caches that grow: with room behind the rows that are used, so that a step appends without a copy.

What a session gives out is a read-only view of the rows so far. Rows are only ever added behind them, by whoever comes
first with the longest view; who appends to a shorter one, whose next rows are taken, gets memory of its own. So arrays
keep their values, whatever is done with them.
"""

from __future__ import annotations

import math
import threading
import weakref

import numpy as np

from autotune.runtime.form import ALIGN, Array
from autotune.tensor.aligned import aligned_zeros


class CacheMemory:
    """A cache with room to spare; what is behind the used rows is zeros.

    Args:
        shape: with `room` rows along `axis`.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic], axis: int) -> None:
        self._raw = aligned_zeros(math.prod(shape) * dtype.itemsize, ALIGN)
        self.array: Array = self._raw.view(dtype).reshape(shape)
        self._axis, self._used = axis, 0
        place, _ = self.array.__array_interface__["data"]
        self.place: int = place
        # NumPy's protocol: arrays made of this keep it alive, and are read-only.
        self.__array_interface__ = {**self.array.__array_interface__, "data": (place, True)}
        self._lock = threading.Lock()

    def rows(self, count: int) -> Array:
        """The first rows, read-only."""
        return np.asarray(self)[(slice(None),) * self._axis + (slice(count),)]

    def claim(self, used: int, count: int) -> bool:
        """Whether the rows from `used` up to `count` are the caller's alone."""
        with self._lock:
            if self._used != used or count > self.array.shape[self._axis]:
                return False
            self._used = count
            return True


class CacheMemories:
    """All of a session, found again by where the arrays lie that it gave out; they live as long as these do."""

    def __init__(self) -> None:
        self._by_address: weakref.WeakValueDictionary[int, CacheMemory] = weakref.WeakValueDictionary()

    def room(self, past: Array, axis: int) -> int:
        """Rows of the memory that rows are in, used or not; 0 where it is none of these."""
        found = self._by_address.get(past.__array_interface__["data"][0])
        return 0 if found is None or found.array.ndim <= axis else int(found.array.shape[axis])

    def with_rows(self, past: Array, axis: int, new: int, room: int) -> CacheMemory:
        """Memory for `room` rows that holds `past`, and whose next `new` rows are the caller's to write."""
        used = past.shape[axis]
        found = self._by_address.get(past.__array_interface__["data"][0])
        shape = (*past.shape[:axis], room, *past.shape[axis + 1 :])
        if found is not None and found.array.shape == shape and found.array.dtype == past.dtype:
            if past.strides == found.array.strides and found.claim(used, used + new):
                return found
        made = CacheMemory(shape, past.dtype, axis)
        made.array[(slice(None),) * axis + (slice(used),)] = past
        made.claim(0, used + new)
        self._by_address[made.place] = made
        return made
