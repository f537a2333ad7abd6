"""A probe on all threads of a pool at once: they start together in compiled code, so it may be short."""

from __future__ import annotations

from typing import final

import numpy as np

from autotune.codegen.jit import compile_ir
from autotune.codegen.link import load_objects
from autotune.measure.probes import Kernel
from autotune.runtime.threads import Plan, Step, ThreadPool
from autotune.target import Target
from autotune.tensor.aligned import aligned_empty

_TRIES = 3  # of a run, of which the best counts: an interrupt is no property of the core
_SPACE = 4096  # bytes of a thread's own: more than kernels touch that do not read or write a buffer

# Each thread has its own part of the data, so that none takes another's cache lines.
_EACH = f"""
define void @each(ptr %frame, i64 %thread, i64 %threads) {{
  %data = load ptr, ptr %frame
  %repeats.at = getelementptr i64, ptr %frame, i64 1
  %repeats = load i64, ptr %repeats.at
  %offset = mul i64 %thread, {_SPACE}
  %own = getelementptr i8, ptr %data, i64 %offset
  call void @probe(ptr %own, i64 1024, i64 %repeats)
  ret void
}}
"""


@final
class PoolProbe:
    """
    Args:
        kernel: what every thread runs; one that is worth operations.
        target: what it is compiled for.
        pool: whose threads.
        seconds: about how long each of a run's tries lasts.

    Raises:
        TargetError: this machine lacks a feature of the target.
    """

    def __init__(self, kernel: Kernel, target: Target, pool: ThreadPool, seconds: float) -> None:
        target.require_host()
        code = compile_ir(kernel.ir + _EACH, cpu=target.cpu, features=target.llvm_features)
        library = load_objects([code.object_code])
        data = aligned_empty(_SPACE * pool.num_threads)
        data[:] = 0x3C  # small normal floats: see `Probe`
        self._plan, alone = (
            Plan(each, [[Step(library.address("each"), [data, 1])]], keep=[library, data])
            for each in (pool, ThreadPool(1))
        )
        self._operations = kernel.operations
        self._repeats = _lasting(alone, seconds)
        self._plan.frames[1] = np.uint64(self._repeats)

    def run(self) -> float:
        """1e9 operations per second of one thread, the slowest."""
        return self._repeats * self._operations / _seconds(self._plan) * 1e-9


def _lasting(plan: Plan, seconds: float) -> int:
    """How many repeats last about so long.

    Args:
        plan: of one thread: several, of which another program keeps one from its core, last as long as it likes.
    """
    repeats = 1
    while (spent := _seconds(plan)) < seconds / 2:
        repeats *= 2
        plan.frames[1] = np.uint64(repeats)
    return max(1, round(repeats * seconds / spent))


def _seconds(plan: Plan) -> float:
    return float(plan.pool.time_plan(plan, 1, _TRIES).min())
