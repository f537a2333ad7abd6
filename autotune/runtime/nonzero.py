"""Where arrays are not zero, by compiled code: `autotune.codegen.nonzero_ir`, loaded into this process."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.codegen.link import Library, load_objects
from autotune.codegen.nonzero_ir import nonzero_object
from autotune.runtime.address import address
from autotune.runtime.once import once

Array = npt.NDArray[Any]
_VIEWS = 256  # that are kept: making one takes as long as finding few elements
_FEW = 1024  # elements that NumPy, which looks at each, is through with before compiled code would be called


def nonzero(x: Array) -> Array:
    """i64 [rank, count]: the indices of the elements that are not zero, in row-major order; `rank` is at least 1."""
    if x.size <= _FEW:
        return np.array(x.nonzero())
    mask = np.ascontiguousarray(x if x.dtype == np.bool_ else x != 0)
    *outer, columns = mask.shape
    count = int(np.count_nonzero(mask))
    found = np.empty(mask.ndim * count + 1, np.int64)
    if count:
        sizes = np.array([outer, [0] * len(outer)], np.int64)
        place = address(sizes) + sizes.itemsize * len(outer)
        _native().find(
            address(mask), math.prod(outer), columns, address(sizes), place, len(outer), address(found), count
        )
    return found[:-1].reshape(mask.ndim, count)


class NonzeroOf:
    """`nonzero` of arrays of one form, one element or more, into memory of its own: a call takes one of native code.

    Args:
        shape, dtype: of what comes; its elements have 1, 2, 4 or 8 bytes.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        *outer, columns = shape
        total, size = math.prod(shape), dtype.itemsize
        bits = 2 ** (8 * size - 1) - 1 if dtype.kind not in "biu" else 2 ** (8 * size) - 1  # -0.0 is zero
        how = [total, size, bits, total // columns, columns, len(outer), *outer, *[0] * len(outer)]
        self._rank = len(shape)
        self._room = np.empty(total * self._rank + 1, np.int64)
        self._keep = np.array(how, np.uint64), np.empty(total, np.uint8)
        self._addresses = *(address(kept) for kept in self._keep), address(self._room)
        self._find = _native().find_all
        self._views: dict[int, Array] = {}

    def at(self, place: int) -> Array:
        """The indices of an array that lies there; they stay until the next call."""
        return self.first(self._find(place, *self._addresses))

    def frame(self, place: int) -> tuple[int, ...]:
        """What native code is told of an array that lies there."""
        return place, *self._addresses, 0

    def first(self, count: int) -> Array:
        """So many indices, of those that are found."""
        found = self._views.get(count)
        if found is None:
            found = self._room[: self._rank * count].reshape(self._rank, count)
            if len(self._views) < _VIEWS:
                self._views[count] = found
        return found


class NonzeroOfEach:
    """`NonzeroOf` of several arrays that lie at the same places in every run, in one call of native code.

    Args:
        found: with the place of each.
    """

    def __init__(self, found: Sequence[tuple[NonzeroOf, int]]) -> None:
        self._first = [one.first for one, _ in found]
        self._frames = np.array([one.frame(place) for one, place in found], np.uint64)
        self._counts = self._frames.view(np.int64)[:, -1]
        self._keep, self._arguments = found, (address(self._frames), len(found))
        self._find = _native().find_each

    def run(self) -> list[Array]:
        """The indices of each; they stay until the next call."""
        self._find(*self._arguments)
        return [first(count) for first, count in zip(self._first, self._counts.tolist())]


class _Native:
    def __init__(self) -> None:
        self.library: Library = load_objects([nonzero_object()])
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(None, pointer, word, word, pointer, pointer, word, pointer, word)
        self.find = kind(self.library.address("autotune_nonzero"))
        all_at_once = ctypes.CFUNCTYPE(word, pointer, pointer, pointer, pointer)
        self.find_all = all_at_once(self.library.address("autotune_find_nonzero"))
        each = ctypes.CFUNCTYPE(None, pointer, word)
        self.find_each = each(self.library.address("autotune_find_each"))


@once
def _native() -> _Native:
    """Compiled once per process, by the first who asks."""
    return _Native()
