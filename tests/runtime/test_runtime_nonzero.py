"""NonZero of several arrays by one call of native code."""

from __future__ import annotations

import numpy as np

from autotune.runtime.address import address
from autotune.runtime.nonzero import NonzeroOf, NonzeroOfEach


def test_each_is_found_run_after_run() -> None:
    rng = np.random.default_rng(0)
    arrays = [np.zeros(70, np.bool_), np.zeros((3, 65), np.float32), np.zeros((2, 3, 4), np.int64)]
    each = NonzeroOfEach([(NonzeroOf(array.shape, array.dtype), address(array)) for array in arrays])
    for share in (0.5, 0.0, 1.0, 0.1):
        for array in arrays:
            array[...] = rng.random(array.shape) < share
        for array, found in zip(arrays, each.run(), strict=True):
            np.testing.assert_array_equal(found, np.array(array.nonzero()))
