"""Distinct numbers by compiled code: `autotune.codegen.unique_ir`, loaded into this process."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.codegen.link import Library, load_objects
from autotune.codegen.unique_ir import unique_object
from autotune.runtime.address import address
from autotune.runtime.once import once

Array = npt.NDArray[Any]
_BYTES = 256  # what a byte may be


def unique(x: Array, *, alone: bool = False) -> tuple[Array, ...] | None:
    """The distinct elements in order, and i64: where each is first, which one each element is, how often each occurs.

    With `alone` the elements and nothing else. None for what has no keys of 32 bits: f64, u64, integers 2^32 and more
    apart, no elements or as many.
    """
    flat = x.ravel()
    count, kind, nbytes = flat.size, flat.dtype.kind, flat.itemsize
    if not 0 < count < 2**32 or kind == "O" or (nbytes == 8 and kind != "i"):
        return None
    whole = kind in "biu"
    numbers = flat if nbytes == 8 or (kind == "f" and nbytes == 4) else flat.astype(np.int64 if whole else np.float32)
    find = _native().of_integers if whole else _native().of_floats
    memory = np.empty(5 * count + _BYTES, np.int64)
    runs = find(address(numbers), count, address(memory))
    if runs < 0:
        return None
    if alone:
        return (flat.take(memory[:runs]),)
    first = memory[:runs].copy()
    return flat.take(first), first, memory[count : 2 * count].copy(), memory[2 * count : 2 * count + runs].copy()


class UniqueOf:
    """`unique` of arrays of one form in memory of its own: a call takes one of native code.

    Args:
        count: of the elements, fewer than 2^32 and at least one; f32 or i64.
        alone: the elements and nothing else.
    """

    def __init__(self, count: int, dtype: np.dtype[Any], *, alone: bool) -> None:
        native = _native()
        self._find = native.of_floats if dtype.kind == "f" else native.of_integers
        self._memory = np.empty(5 * count + _BYTES, np.int64)
        self._count, self._alone, self._address = count, alone, address(self._memory)

    def of(self, x: Array, place: int) -> tuple[Array, ...] | None:
        """What `unique` gives for an array that lies there; it stays until the next call."""
        count, memory = self._count, self._memory
        runs = self._find(place, count, self._address)
        if runs < 0:
            return None
        first = memory[:runs]
        distinct = x.take(first)
        return (distinct,) if self._alone else (
            distinct, first, memory[count : 2 * count], memory[2 * count : 2 * count + runs])  # fmt: skip


class _Native:
    def __init__(self) -> None:
        self.library: Library = load_objects([unique_object()])
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        self.of_integers = kind(self.library.address("autotune_unique_i64"))
        self.of_floats = kind(self.library.address("autotune_unique_f32"))


@once
def _native() -> _Native:
    """Compiled once per process, by the first who asks."""
    return _Native()
