"""Which shapes tensors may have."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import WorkloadError

MAX_ELEMENTS = 2**40
MAX_RANK = 32  # of NumPy's arrays, before 2.0


def check_shape(shape: Sequence[int], name: str) -> tuple[int, ...]:
    """The shape as a tuple of ints.

    Raises:
        WorkloadError: for negative extents, more elements than any machine holds, or more dimensions than an array has.
    """
    if len(shape) > MAX_RANK:
        raise WorkloadError(f"{name}: a shape of {len(shape)} dimensions, more than {MAX_RANK}")
    elements = 1
    for extent in shape:
        if not isinstance(extent, int) or extent < 0:
            raise WorkloadError(f"{name}: shape {tuple(shape)} has the impossible extent {extent!r}")
        elements *= max(extent, 1)
    if elements > MAX_ELEMENTS:
        raise WorkloadError(f"{name}: shape {tuple(shape)} has {elements} elements, more than {MAX_ELEMENTS}")
    return tuple(shape)
