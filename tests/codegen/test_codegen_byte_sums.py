"""Sums of byte products across lanes, which LLVM turns into dot-product instructions."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.runtime.function import KernelFunction
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, cast, compute, placeholder, reduce_axis, sum_


@pytest.mark.parametrize("lanes", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("target", ["native -num-cores=1", "x86 -mcpu=haswell -num-cores=1"])
@pytest.mark.parametrize("kinds", [("u8", "i8"), ("i8", "i8"), ("u8", "u8")])
def test_every_lane_counts(lanes: int, target: str, kinds: tuple[str, str]) -> None:
    a, b = placeholder((3, 64), kinds[0], "a"), placeholder((64, 5), kinds[1], "b")
    k = reduce_axis(64, "k")
    c = compute((3, 5), lambda i, j: sum_(cast("i32", a[i, k]) * cast("i32", b[k, j]), k), name="c")
    definition = ComputeDef.build([a, b], [c])
    schedule = Schedule(definition).split("c", "k", lanes).vectorize("c", "k.1")
    rng = np.random.default_rng(0)
    x, y = (rng.integers(np.iinfo(t.dtype.numpy).min, np.iinfo(t.dtype.numpy).max, t.shape, t.dtype.numpy, True)
            for t in (a, b))  # fmt: skip
    parsed = Target.parse(target)
    with KernelFunction(definition.inputs, build_kernel(schedule, parsed), parsed) as fn:
        np.testing.assert_array_equal(fn(x, y)[0], x.astype(np.int32) @ y.astype(np.int32))
