"""Weights as cold as a model will find them: a timed kernel reads other bytes in every pass.

A model touches all its weights between two runs of one kernel, so they come from L3 or DRAM. One large block
of random numbers stands for the model's weights; each pass takes the next slices of it. What the numbers are
does not matter (the kernel is verified before), only that they are ordinary: denormals would be slow, and
equal bytes would let the CPU clock higher. Words of 32 bits hold scales among codes, so they are those of floats.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from autotune.measure.buffers import ALIGNMENT
from autotune.tensor.aligned import aligned_empty

_TILE = 1 << 18  # numbers drawn; the block repeats them
_MOST_SETS = 1024  # per batch: laying out a set costs about as long as a tiny kernel runs


class WeightBlock:
    """`size` bytes of ordinary numbers of one type, handed out in turn."""

    def __init__(self, size: int, dtype: npt.DTypeLike, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        kind = np.dtype(dtype)
        if np.issubdtype(kind, np.integer) and kind != np.uint32:
            tile = rng.integers(0, 128, _TILE).astype(kind)
        else:
            tile = 0.05 * rng.standard_normal(_TILE)
            tile = tile.astype(np.float32).view(kind) if kind == np.uint32 else tile.astype(kind)
        self.dtype = kind
        self.bytes = aligned_empty(size)
        pattern = tile.view(np.uint8)
        for start in range(0, size, pattern.size):
            piece = self.bytes[start : start + pattern.size]
            piece[:] = pattern[: piece.size]
        self._cursor = 0

    def take(self, sizes: Mapping[str, int], count: int) -> list[dict[str, int]]:
        """Addresses of `count` sets of copies, `sizes` in bytes by name; wraps around at the end.

        Where one set is as large as the block, there is nothing to rotate: it is as cold as it gets.
        """
        rooms = {name: -(-size // ALIGNMENT) * ALIGNMENT for name, size in sizes.items()}
        total = sum(rooms.values())
        if total == 0 or 2 * total > self.bytes.size:
            return [{}]
        sets = []
        for _ in range(min(count, _MOST_SETS, self.bytes.size // total)):
            if self._cursor + total > self.bytes.size:
                self._cursor = 0
            at = int(self.bytes.ctypes.data) + self._cursor
            addresses = {}
            for name, room in rooms.items():
                addresses[name] = at
                at += room
            sets.append(addresses)
            self._cursor += total
        return sets
