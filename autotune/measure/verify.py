"""Verification: a kernel is timed only after its outputs were found right in every way it will be run."""

from __future__ import annotations

import numpy as np

from autotune.measure.bench import Bench, outside, physical
from autotune.measure.failure import Failure
from autotune.measure.reference import AS_THE_DEFINITION, Allowance, Errors, compare
from autotune.runtime.threads import ThreadPool


def verify(bench: Bench, pools: list[ThreadPool], allow: Allowance = AS_THE_DEFINITION) -> Errors | Failure:
    """Find whether the outputs are as near to the reference as `allow` says.

    Run at each number of threads, then once more with scratch as the last run left it; compare each time.

    Outputs start as NaN, so what a kernel forgets to write is found; so does scratch, except in the last run,
    which finds what a kernel forgets to initialise there. Halo and block padding must come out zero: readers
    rely on it.
    """
    worst: Errors | None = None
    accepted: list[bytes] = []
    for pool, dirty in [*((pool, False) for pool in pools), (pools[-1], True)]:
        circumstances = f"{pool.num_threads} threads, {'dirty' if dirty else 'fresh'} scratch"
        bench.poison_outputs()
        if not dirty:
            bench.poison_scratch()
        bench.run(pool)
        if (stray := bench.stray_write()) is not None:
            return Failure("incorrect", f"the kernel wrote to {stray} ({circumstances})")
        written = [buffer.bytes.tobytes() for _, buffer in bench.outputs()]
        if worst is not None and written == accepted:  # the usual case: bit for bit what was right before
            continue
        found = _compare(bench, allow, circumstances)
        if isinstance(found, Failure):
            return found
        if worst is None or found.max_abs_err > worst.max_abs_err:
            worst = found
        accepted = written
    assert worst is not None
    return worst


def _compare(bench: Bench, allow: Allowance, circumstances: str) -> Errors | Failure:
    for operand, buffer in bench.outputs():
        mask = outside(operand.layout, operand.shape)
        around = None if mask is None else operand.layout.pack(np.zeros(operand.shape, operand.dtype.numpy))[mask]
        if mask is not None and (physical(operand, buffer)[mask] != around).any():
            what = f"halo or block padding of output {operand.name} ({operand.layout}) is not {operand.layout.fill}"
            return Failure("incorrect", f"{what} ({circumstances})")
    return compare(bench.task.reference, bench.logical_outputs(), allow, circumstances)
