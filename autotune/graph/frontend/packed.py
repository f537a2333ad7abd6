"""Numbers of a few bits, one after the other in bytes, the lowest bits first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def unpacked(raw: bytes | Bytes, bits: int, count: int) -> Bytes:
    """The first `count` numbers, a byte each; those whose bits do not divide 8 may straddle two bytes."""
    packed = np.frombuffer(raw, np.uint8) if isinstance(raw, bytes) else raw.reshape(-1)
    if 8 % bits:
        single = np.unpackbits(packed, count=count * bits, bitorder="little").reshape(count, bits)
        return np.packbits(single, axis=1, bitorder="little").reshape(-1)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((packed[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[:count]
