"""Where arrays lie, and which may be read where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from autotune.runtime.address import address, place_of

Array = npt.NDArray[Any]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.bool_, np.int64])
def test_contiguous_arrays_have_a_place(dtype: type) -> None:
    array: Array = np.zeros((3, 4), dtype)
    assert place_of(array) == address(array) == array.ctypes.data


def test_read_only_and_empty_ones_too() -> None:
    array = np.zeros((3, 4), np.float32)
    array.flags.writeable = False
    assert place_of(array) == array.ctypes.data
    empty = np.zeros((0, 4), np.float32)
    assert place_of(empty) == empty.ctypes.data


def test_others_have_none() -> None:
    array = np.zeros((3, 4), np.float32)
    assert place_of(array.T) is None and place_of(array[:, ::2]) is None and place_of(array[::-1]) is None
    array.flags.writeable = False
    assert place_of(array.T) is None
