"""Where arrays are not zero, by compiled code: `autotune.codegen.nonzero_ir`, loaded into this process."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.codegen.link import Library, load_objects
from autotune.codegen.nonzero_ir import nonzero_object
from autotune.runtime.address import address

Array = npt.NDArray[Any]
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


class _Native:
    def __init__(self) -> None:
        self.library: Library = load_objects([nonzero_object()])
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(None, pointer, word, word, pointer, pointer, word, pointer, word)
        self.find = kind(self.library.address("autotune_nonzero"))


@functools.cache
def _native() -> _Native:
    """Compiled once per process, by the first who asks."""
    return _Native()
