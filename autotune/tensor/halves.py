"""Arrays of f32 as bf16 and back: what `astype` gives, several times as fast."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.tensor.layout import Array

_BF16 = "bfloat16"
_HALF = np.uint32(0x7FFF)
_NAN, _SIGN = np.uint16(0x7FC0), np.uint16(0x8000)


def converted(array: Array, dtype: np.dtype[Any]) -> Array:
    """`array.astype(dtype, copy=False)`, bit by bit.

    bf16 is the upper half of f32; what is added to the lower half rounds it to the nearest, and of two to the even one.
    """
    if array.dtype == np.float32 and dtype.name == _BF16:
        return _rounded(np.ascontiguousarray(array)).view(dtype).reshape(array.shape)
    if array.dtype.name == _BF16 and dtype == np.float32:
        wide = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32)
        wide <<= np.uint32(16)
        return wide.view(np.float32).reshape(array.shape)
    return array.astype(dtype, copy=False)


def _rounded(array: Array) -> Array:
    bits = array.view(np.uint32)
    found = bits >> np.uint32(16)
    found &= np.uint32(1)
    found += _HALF
    found += bits
    found >>= np.uint32(16)
    upper = found.astype(np.uint16)
    nothing = np.isnan(array)
    if nothing.any():
        upper[nothing] = ((bits[nothing] >> np.uint32(16)).astype(np.uint16) & _SIGN) | _NAN
    return upper
