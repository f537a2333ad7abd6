"""Memory for the results of runs: what nobody has a view of any more is given out again.

The C library hands pages that were freed back to the system, and each page of new memory is a fault. A decoder with
sixty caches as outputs had a thousand faults in a run: a fifth of its time.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.runtime.address import address as address_of
from autotune.runtime.program import Program, TensorSpec
from autotune.tensor.dtype import DType

Array = npt.NDArray[Any]
ALIGN = 64
KEPT = 2
"""Of an output: where results are fed to the next run, one is read while the other is written."""
LARGE = 1 << 22
"""Bytes from which NumPy asks for large pages: their faults are few, and they would be much to keep."""
SMALL = 1 << 14
"""Bytes up to which a copy takes less time than making an array on a cache line and telling kernels where it is."""


class Form:
    """What a new array for a tensor needs, looked up once: making one is on the path of every run.

    Attributes:
        small: it is written into memory of ours and copied from there.
    """

    def __init__(self, spec: TensorSpec) -> None:
        self.shape, self.dtype, self._nbytes = spec.shape, DType(spec.dtype).numpy, spec_bytes(spec) + ALIGN
        self.small = spec_bytes(spec) <= SMALL
        self._kept: deque[Array] = deque()

    def fresh(self) -> tuple[Array, int]:
        """A new array on a cache line of its own, and its address."""
        return self._placed(np.empty(self._nbytes, np.uint8))

    def lent(self) -> tuple[Array, int]:
        """The same, in memory that an earlier one lay in where no array, view or buffer of that is left.

        Several threads may ask at once: what one of them has taken out, no other sees.
        """
        if self._nbytes >= LARGE:
            return self.fresh()
        raw = self._free()
        if raw is None:
            raw = np.empty(self._nbytes, np.uint8)
        found = self._placed(raw)
        if len(self._kept) < KEPT:
            self._kept.append(raw)
        return found

    def _free(self) -> Array | None:
        """Memory that nobody has, taken out; None where there is none."""
        for _ in range(len(self._kept)):
            try:
                raw, holders = _first(self._kept)
            except IndexError:  # others have taken them
                return None
            if holders == _ALONE:
                return raw
            self._kept.append(raw)
        return None

    def _placed(self, raw: Array) -> tuple[Array, int]:
        address = address_of(raw)
        start = -address % ALIGN
        return np.ndarray(self.shape, self.dtype, raw, start), address + start


def spec_bytes(spec: TensorSpec) -> int:
    """Bytes of a tensor."""
    return math.prod(spec.shape) * DType(spec.dtype).numpy.itemsize


def output_bytes(program: Program) -> int:
    """Bytes of all outputs."""
    return sum(spec_bytes(spec) for spec, _ in program.outputs)


def _first(kept: deque[Array]) -> tuple[Array, int]:
    """The memory that was kept first, taken out, and how many hold it."""
    raw = kept.popleft()
    return raw, sys.getrefcount(raw)


_ALONE = _first(deque([np.empty(0, np.uint8)]))[1]
"""Holders of memory that only `_first` has: how many Python counts depends on its version."""
