"""Kernels linked into this process, each once however many programs call it."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Sequence

from autotune.codegen.link import Library, load_objects
from autotune.runtime.native import NativeRuntime

_lock = threading.Lock()
_linked: weakref.WeakValueDictionary[tuple[int, bytes], Library] = weakref.WeakValueDictionary()


def link_kernels(objects: Sequence[bytes], runtime: NativeRuntime) -> list[Library]:
    """The libraries of objects with a function `kernel` each; a library stays as long as somebody holds it.

    Raises:
        CodegenError: an object does not link.
    """
    found: list[Library] = []
    for data in objects:
        key = (id(runtime), hashlib.sha256(data).digest())  # runtimes stay for ever
        with _lock:
            library = _linked.get(key)
            if library is None:
                library = _linked[key] = load_objects([data], runtime.imports)
        found.append(library)
    return found
