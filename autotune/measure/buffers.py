"""Buffers that make a kernel's stray access visible: a fault, a NaN, or a changed canary."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
from collections.abc import Iterator
from typing import Any, final

import numpy as np
import numpy.typing as npt

from autotune.errors import MeasureError

ALIGNMENT = 64  # bytes: the kernel ABI's promise
_HUGE = 1 << 21  # bytes of x86-64's larger pages
POISON = 0xFF  # every byte: NaN in all our float types, -1 in integers, true in bool

_PROT_NONE, _PROT_READ = 0, 1


class GuardedBuffer:
    """`size` bytes between two pages that nobody may touch.

    The data ends at the rear guard page, up to the alignment: reading or writing past it ends in SIGSEGV. What
    lies between the front guard page and the data is poisoned, so that a read before the start gives NaN
    and a write there is found by `slack_intact`.

    Large buffers ask for large pages, as a model's arena and weights do, which NumPy allocates: with small ones, a
    kernel that streams takes some percent longer, and how many depends on who else uses the CPU's table of pages.
    """

    def __init__(self, size: int, poisoned: bool = True) -> None:
        """`poisoned`: the data, too; else it is zero, for whoever writes all of it."""
        page = mmap.PAGESIZE
        room = -(-size // ALIGNMENT) * ALIGNMENT
        unit = _HUGE if room >= _HUGE else page
        inner = max(1, -(-room // unit)) * unit
        try:
            self._map = mmap.mmap(-1, inner + 2 * unit, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"no memory for a buffer of {size} bytes: {os.strerror(error.errno or 0)}") from error
        whole = np.frombuffer(self._map, np.uint8)
        base = int(whole.ctypes.data)
        first = page + (-base - page) % unit
        if unit == _HUGE:
            with contextlib.suppress(OSError):  # a kernel without them
                self._map.madvise(mmap.MADV_HUGEPAGE)
        start = first + inner - room
        self._front = whole[first:start]
        self._rear = whole[start + size : first + inner]
        self.bytes: npt.NDArray[np.uint8] = whole[start : start + size]
        self.address = base + start
        self._front.fill(POISON)
        self._rear.fill(POISON)
        if poisoned:
            self.poison()
        for guard in (first - page, first + inner):
            _protect(base + guard, page, _PROT_NONE)
        self._inner = (base + first, inner)
        self._behind = (base + first + inner, page)

    def poison(self) -> None:
        """Overwrite the data with bytes that are NaN as a float."""
        self.bytes.fill(POISON)

    def freeze(self) -> None:
        """From now on, writing to the data is a fault."""
        _protect(*self._inner, _PROT_READ)

    @contextlib.contextmanager
    def readable_behind(self) -> Iterator[None]:
        """Meanwhile the page behind the data may be read, as where a model's tensors lie.

        A masked load of which some lanes would reach into a page that cannot be read is no fault, but takes hundreds of
        cycles: kernels with such loads in their last row were timed at up to four times what they take in a model.
        """
        _protect(*self._behind, _PROT_READ)
        ctypes.string_at(self._behind[0], 1)  # there is a page, not only the right to one
        try:
            yield
        finally:
            _protect(*self._behind, _PROT_NONE)

    def view(self, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The data as an array; it shares memory."""
        return self.bytes.view(dtype).reshape(shape)

    def slack_intact(self) -> bool:
        """Whether nobody wrote between the data and the guard pages."""
        return bool((self._front == POISON).all() and (self._rear == POISON).all())


@final
class SpareBuffers:
    """Buffers that wait for the next who needs one of just their size: a new one costs a fault for each of its pages,
    which takes longer than many a kernel.

    Args:
        most_bytes: of those that wait; the ones that have waited longest go first.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._spare: list[GuardedBuffer] = []

    def take(self, size: int) -> GuardedBuffer:
        """One of so many bytes, which may hold anything."""
        for place in range(len(self._spare) - 1, -1, -1):
            if self._spare[place].bytes.size == size:
                return self._spare.pop(place)
        return GuardedBuffer(size)

    def give(self, buffer: GuardedBuffer) -> None:
        """What nobody uses any more. One that was written beside its data is not kept."""
        if not buffer.slack_intact():
            return
        self._spare.append(buffer)
        while sum(spare.bytes.nbytes for spare in self._spare) > self._most:
            del self._spare[0]


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _protect(address: int, size: int, access: int) -> None:
    if _libc().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), access) != 0:
        raise MeasureError(f"mprotect failed: {os.strerror(ctypes.get_errno())}")
