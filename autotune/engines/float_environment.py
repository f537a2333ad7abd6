"""What others tell a thread of floats, such as that denormals are zero, taken back."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_ROOM = 64
"""Bytes; `fenv_t` has 32 on x86-64."""


@contextmanager
def own_float_environment() -> Iterator[None]:
    """Rounding, denormals and masks of this thread are afterwards as they were before.

    ONNX Runtime, told to flush denormals, tells the thread that makes the first session so, which is the user's.
    """
    libm, kept = ctypes.CDLL("libm.so.6"), ctypes.create_string_buffer(_ROOM)
    libm.fegetenv(kept)
    try:
        yield
    finally:
        libm.fesetenv(kept)
