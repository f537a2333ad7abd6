"""Arrays that begin where vectors and cache lines do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def aligned_empty(nbytes: int, align: int = 64) -> npt.NDArray[np.uint8]:
    """Uninitialised u8 (nbytes,) whose first byte lies on a multiple of `align`."""
    return _from_multiple(np.empty(nbytes + align, dtype=np.uint8), nbytes, align)


def aligned_zeros(nbytes: int, align: int = 64) -> npt.NDArray[np.uint8]:
    """Zeros, u8 (nbytes,), whose first byte lies on a multiple of `align`; memory is taken as it is written to."""
    return _from_multiple(np.zeros(nbytes + align, dtype=np.uint8), nbytes, align)


def _from_multiple(raw: npt.NDArray[np.uint8], nbytes: int, align: int) -> npt.NDArray[np.uint8]:
    start = -int(raw.__array_interface__["data"][0]) % align
    return raw[start : start + nbytes]
