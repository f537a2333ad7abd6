"""Vector tails: masks cost no vector registers, and register tiles stay in registers beside them."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel, generate
from autotune.measure.bench import Bench, TaskData
from autotune.measure.reference import Reference
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, compute, placeholder, read


@pytest.mark.parametrize("lanes", [2, 3, 8, 16, 32])
@pytest.mark.parametrize("extent", [1, 7, 37, 64])
def test_first_and_last_lanes_that_count(lanes: int, extent: int) -> None:
    x = placeholder((extent,), name="in0")
    y = compute((extent,), lambda i: read(x, (i - 3,), when=i >= 3, otherwise=5.0), name="out0")
    target = Target.parse("native -num-cores=1")
    s = Schedule(ComputeDef.build([x], [y])).split("out0", "i", lanes).vectorize("out0", "i.1")
    data = np.arange(extent, dtype=np.float32)
    expected = np.concatenate([np.full(3, 5.0, np.float32), data])[:extent]
    task = TaskData(Reference((data,), (expected,), (0.0,)))
    with Bench(build_kernel(s, target), task, 1) as bench, ThreadPool(1) as pool:
        bench.run(pool)
        assert bench.stray_write() is None
        np.testing.assert_array_equal(bench.logical_outputs()[0], expected)


def test_a_register_tile_is_read_unmasked() -> None:
    x = placeholder((37,), name="in0")
    double = compute((37,), lambda i: x[i] + x[i], name="double")
    y = compute((37,), lambda i: double[i] * double[i], name="out0")
    s = Schedule(ComputeDef.build([x], [y])).split("out0", "i", 8)
    s = s.compute_at("double", "out0", "i.0", "register").vectorize("double", "i").vectorize("out0", "i.1")
    masked = [
        line
        for line in generate(s, Target.parse("native -num-cores=1")).ir.splitlines()
        if "masked" in line and not line.startswith("declare")
    ]
    assert len(masked) == 2  # one load of the input, one store of the output
    assert all("double" not in line for line in masked)
