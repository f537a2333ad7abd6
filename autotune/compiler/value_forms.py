"""What a specialisation depends on of the values that it reads."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

if TYPE_CHECKING:  # the frontend has to come first
    from autotune.graph.host import HostValue
    from autotune.runtime.executor import Array

_SHORT = 64  # bytes of a value that is its own digest


def is_tensor(value: HostValue) -> TypeGuard[Array]:
    """Whether a value is a tensor of numbers: what programs take."""
    return isinstance(value, np.ndarray) and value.dtype != object


def form_of(value: HostValue) -> object:
    """What a specialisation depends on of a value that it reads."""
    if not isinstance(value, np.ndarray):
        return None
    dtype = value.dtype
    return object if dtype.hasobject else (dtype, value.shape)


def digest(value: HostValue) -> bytes:
    """What tells a value from others."""
    data = value.tobytes() if isinstance(value, np.ndarray) else np.asarray(value).tobytes()
    return data if len(data) <= _SHORT else hashlib.sha256(data).digest()
