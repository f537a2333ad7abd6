"""Non-maximum suppression by compiled code: `autotune.codegen.boxes_ir`, loaded into this process."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.codegen.boxes_ir import boxes_object
from autotune.codegen.link import Library, load_objects
from autotune.runtime.address import address
from autotune.runtime.once import once

Array = npt.NDArray[Any]
_LANES = 16
_SIZES = struct.Struct("5q")
_MANY = 2**20  # rows of results for which candidates are counted first


def keep_boxes(boxes: Array, scores: Array, limit: int, overlap: float, least: float, centred: bool) -> Array:
    """i64 [found, 3]: batch, class and number of the boxes that stay, the best of each class first.

    Args:
        boxes: f32 [batches, count, 4]: two opposite corners, or centre and size.
        scores: f32 [batches, classes, count]; only those above `least` are candidates.
        limit: boxes of one class, at most.
        overlap: the share of what two boxes cover that they may have in common.
        least: see `scores`.
        centred: whether boxes are centre and size.
    """
    boxes, scores = np.ascontiguousarray(boxes, np.float32), np.ascontiguousarray(scores, np.float32)
    batches, classes, count = scores.shape
    limit = max(min(limit, count), 0)
    most = batches * classes * limit  # what is not written costs no memory, only addresses
    if most > _MANY:
        most = min(most, np.count_nonzero(scores > np.float32(least)))
    if not most:
        return np.empty((0, 3), np.int64)
    room = -(-limit // _LANES) * _LANES
    before = _SIZES.size // 8 + count + 5 * room // 2
    memory = np.empty(before + 3 * most, np.int64)  # one array: each address takes as long as a box
    _SIZES.pack_into(memory.data, 0, batches, classes, count, limit, centred)
    sizes = address(memory)
    keys = sizes + _SIZES.size
    found = sizes + 8 * before
    total = _native().keep(address(boxes), address(scores), sizes, overlap, least, keys, keys + 8 * count, found)
    return memory[before : before + 3 * total].copy().reshape(total, 3)


class BoxesOf:
    """`keep_boxes` of arrays of one form, into memory of its own: a call takes one of native code.

    Args:
        batches, classes, count: of the scores; one of each or more, as of `limit`. The others: see `keep_boxes`.
    """

    def __init__(
        self, batches: int, classes: int, count: int, limit: int, overlap: float, least: float, centred: bool
    ) -> None:
        limit = min(limit, count)
        room = -(-limit // _LANES) * _LANES
        before = _SIZES.size // 8 + count + 5 * room // 2
        self._memory = np.empty(before + 3 * batches * classes * limit, np.int64)
        _SIZES.pack_into(self._memory.data, 0, batches, classes, count, limit, centred)
        sizes = address(self._memory)
        keys = sizes + _SIZES.size
        self._found = self._memory[before:]
        self._how = sizes, overlap, least, keys, keys + 8 * count, sizes + 8 * before
        self._keep = _native().keep

    def at(self, boxes: int, scores: int) -> Array:
        """What `keep_boxes` gives for arrays that lie there; it stays until the next call."""
        total = self._keep(boxes, scores, *self._how)
        return self._found[: 3 * total].reshape(total, 3)


class _Native:
    def __init__(self) -> None:
        self.library: Library = load_objects([boxes_object()])
        pointer, number = ctypes.c_void_p, ctypes.c_float
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, pointer, pointer, pointer, number, number, pointer, pointer, pointer)
        self.keep = kind(self.library.address("autotune_keep_boxes"))


@once
def _native() -> _Native:
    """Compiled once per process, by the first who asks."""
    return _Native()
