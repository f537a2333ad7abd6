"""Random inputs of a model: to try it, to time it, and to compare it with others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.runtime.executor import Array
from autotune.runtime.program import TensorSpec
from autotune.tensor.dtype import DType
from autotune.tensor.storage import INTEGER_BITS


def random_feeds(specs: Sequence[TensorSpec], seed: int, size: float = 1.0) -> dict[str, Array]:
    """Varied values, the same for the same seed: normal floats, integers 0 and 1 (safe as indices), booleans.

    Args:
        size: standard deviation of floats.
    """
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for spec in specs:
        dtype = DType(spec.dtype)
        real = dtype.is_float or (dtype.is_storage and dtype not in INTEGER_BITS)
        drawn = size * rng.standard_normal(spec.shape) if real else rng.integers(0, 2, spec.shape)
        feeds[spec.name] = drawn.astype(dtype.numpy)
    return feeds
