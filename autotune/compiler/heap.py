"""The heap while a model is compiled: what that leaves behind is given back, and Python looks for cycles afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator


def trim() -> None:
    """Give free pages of the heap back to the system, where the C library can be asked to (glibc).

    Graphs, IR and LLVM's memory lie between what stays, so that the heap does not shrink by itself: after ResNet-50 it
    held 60 MB that nobody used.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Python does not look for cycles meanwhile: graphs and IR have none, and looking at all of them again and again
    takes a fourteenth of a compilation. What is left then counts as old: else the next object made would have it looked
    at all at once, a tenth of a second after a large model."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # else somebody has set objects aside, and `unfreeze` would bring them back
                gc.freeze()
                gc.unfreeze()
            gc.enable()
