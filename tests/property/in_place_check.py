"""Does a kernel compute the same where its result lies on an operand that only elementwise operators read?"""

from __future__ import annotations

import numpy as np

from autotune.compiler.in_place import read_elsewhere
from autotune.lower.operands import fill_operand
from autotune.measure.bench import Bench
from autotune.measure.buffers import GuardedBuffer
from autotune.ops.workload import Workload
from autotune.runtime.threads import ThreadPool


def differs_in_place(bench: Bench, workload: Workload, pool: ThreadPool) -> str | None:
    """Which operand the result cannot lie on, though the compiler would put it there; None when there is none such."""
    elsewhere = {f"in{n}" for n in read_elsewhere(workload)}
    outputs = [operand for operand in bench.kernel.operands if operand.role == "output"]
    if len(outputs) != 1:
        return None
    place = (outputs[0].dtype, outputs[0].shape, outputs[0].layout)
    for operand in bench.kernel.operands:
        if operand.role != "input" or operand.name in elsewhere:
            continue
        if (operand.dtype, operand.shape, operand.layout) == place:
            bench.run(pool)
            apart = bench.logical_outputs()[0].copy()
            memory = GuardedBuffer(operand.bytes)
            fill_operand(operand, bench.task.inputs, memory.bytes)
            bench.run(pool, {operand.name: memory.address, outputs[0].name: memory.address})
            physical = memory.view(operand.dtype.numpy, operand.layout.physical_shape(operand.shape))
            if not np.array_equal(operand.layout.unpack(physical, operand.shape), apart, equal_nan=True):
                return f"the result is another one where it lies on {operand.name}"
    return None
