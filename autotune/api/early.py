"""Processes that help to compile a model: they start while we import what compiles it and read it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from autotune.codegen.beside import Beside

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource
    from autotune.graph.frontend.source import Source

LARGE = 1 << 20
"""Bytes of a model that has more to build, as a rule, than one process does while another one starts."""


def helpers(model: ModelSource | Source) -> Beside:
    """Started for a large model; for others they start when there is much to do."""
    beside = Beside(["autotune.compiler.asked"])
    if _size(model) >= LARGE:
        beside.start()
    return beside


def _size(model: ModelSource | Source) -> int:
    """Bytes of a file or of its contents; 0 where that takes more than a look."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return len(model)
    try:
        return os.stat(model).st_size if isinstance(model, (str, os.PathLike)) else 0
    except (OSError, ValueError):
        return 0  # who opens it says why
