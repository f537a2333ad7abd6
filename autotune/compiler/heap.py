"""The C library's heap: what compiling leaves behind is given back to the system."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Give free pages of the heap back to the system, where the C library can be asked to (glibc).

    Graphs, IR and LLVM's memory lie between what stays, so that the heap does not shrink by itself: after ResNet-50 it
    held 60 MB that nobody used.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
