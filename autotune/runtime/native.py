"""The native runtime object loaded into this process: its functions, and its symbols for kernels to link with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.codegen.link import Library, load_objects
from autotune.runtime.once import once

CALLED = ("autotune_barrier", "autotune_claim")
"""What kernels call; a file that was compiled before a function was there calls it nowhere."""


@dataclass(frozen=True, slots=True)
class NativeRuntime:
    """The functions of `autotune.codegen.runtime_ir`; ctypes releases the GIL while they run.

    Attributes:
        run_traced: None in a file that was compiled before it was there.
        imports: symbol → address of what kernels may call; pass it to `load_objects`.
    """

    library: Library
    pool_create: Callable[[int, int, int], int | None]
    pool_destroy: Callable[[int], None]
    pool_barrier: Callable[[int], int]
    pool_run: Callable[[int, int, int], None]
    run: Callable[[int, int], None]
    run_profiled: Callable[[int, int, int], None]
    run_traced: Callable[[int, int, int, int], None] | None
    time: Callable[[int, int, int, int, int], None]
    imports: Mapping[str, int]


@once
def native_runtime() -> NativeRuntime:
    """The runtime, compiled and loaded once per process."""
    from autotune.codegen.jit import compile_ir  # a compiled model brings its own, and needs no LLVM
    from autotune.codegen.runtime_ir import runtime_object

    return load_runtime(runtime_object(compile_ir))


@once
def load_runtime(object_code: bytes) -> NativeRuntime:
    """A runtime object, loaded once per process and never unloaded: helper threads live in its code.

    A compiled model brings the one it was made with, so that nothing has to be compiled.
    """
    library = load_objects([object_code])
    word, pointer = ctypes.c_int64, ctypes.c_void_p

    def function(name: str, result: type[ctypes.c_void_p] | None, *arguments: type) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(library.address(f"autotune_{name}"))

    return NativeRuntime(
        library=library,
        pool_create=function("pool_create", pointer, word, word, word),
        pool_destroy=function("pool_destroy", None, pointer),
        pool_barrier=function("pool_barrier", pointer, pointer),
        pool_run=function("pool_run", None, pointer, pointer, pointer),
        run=function("run", None, pointer, pointer),
        run_profiled=function("run_profiled", None, pointer, pointer, pointer),
        run_traced=function("run_traced", None, *[pointer] * 4) if library.defines("autotune_run_traced") else None,
        time=function("time", None, pointer, pointer, word, word, pointer),
        imports={name: library.address(name) for name in CALLED if library.defines(name)},
    )
