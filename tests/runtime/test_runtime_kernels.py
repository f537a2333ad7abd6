"""Kernels linked once for all programs."""

from __future__ import annotations

import gc
import weakref

from autotune.codegen.jit import compile_ir
from autotune.runtime.kernels import link_kernels
from autotune.runtime.native import native_runtime
from autotune.target import Target

TEXT = "define void @kernel(ptr %frame, i64 %thread, i64 %threads) {{ store i64 {}, ptr %frame\n ret void }}"


def test_equal_objects_are_linked_once_and_unloaded_with_the_last_user() -> None:
    target, runtime = Target.parse("native"), native_runtime()
    one, two = (
        compile_ir(TEXT.format(n), cpu=target.cpu, features=target.llvm_features).object_code for n in (4711, 4712)
    )
    first, second = link_kernels([one, two], runtime)
    (again,) = link_kernels([bytes(one)], runtime)
    assert again is first
    assert first.address("kernel") != second.address("kernel")
    gone = weakref.ref(first)
    del first, again
    gc.collect()
    assert gone() is None
    assert second.address("kernel")
