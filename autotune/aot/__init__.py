"""Ahead of time: a compiled model as a shared library with a C header, which needs no Python."""

from autotune.aot.library import save_library

__all__ = ["save_library"]
