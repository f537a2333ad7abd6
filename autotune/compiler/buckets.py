"""Which larger shapes a model with open dimensions runs in: sizes for padding, pieces for what may be cut."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.runtime.executor import Array
from autotune.search_spaces.space.limit import Speed, products_per_cycle
from autotune.target import Target

STEPS = 16
"""Sizes between a power of two and the next one, so that padding adds a sixteenth at most."""

READS = 8.0
"""A piece is large enough when its arithmetic takes so many times as long as reading the weights."""


def padded_size(extent: int) -> int:
    """The size of the bucket of an extent, 1 or more."""
    step = max(1, (1 << (extent - 1).bit_length()) // (2 * STEPS))
    return -(-extent // step) * step


def pieces(extent: int, most: int) -> list[int]:
    """Powers of two that an extent is cut into, none larger than `most`, the largest first."""
    found: list[int] = []
    while extent:
        found.append(min(most, 1 << (extent.bit_length() - 1)))
        extent -= found[-1]
    return found


def enough(flops: float, nbytes: int, target: Target) -> int:
    """The power of two of elements along a dimension whose arithmetic hides that weights are read for each piece.

    Args:
        flops: of one element.
        nbytes: of all weights.
    """
    speed = Speed.of(target)
    arithmetic = flops / (speed.clock * target.num_threads * 2 * products_per_cycle(target.core, "f32"))
    wanted = READS * nbytes / speed.dram / max(arithmetic, 1e-12)
    return 1 << max(0, int(wanted) - 1).bit_length()


def padded(array: Array, shape: tuple[int, ...]) -> Array:
    """The array in a larger shape, zeros behind it."""
    if array.shape == shape:
        return array
    found = np.zeros(shape, array.dtype)
    found[tuple(map(slice, array.shape))] = array
    return found


def cropped(array: Array, extents: Mapping[int, int]) -> Array:
    """What is no padding: so many elements along these axes."""
    inside = [slice(None)] * array.ndim
    for axis, extent in extents.items():
        inside[axis] = slice(extent)
    found = array[tuple(inside)]
    return array if found.shape == array.shape else found.copy()
