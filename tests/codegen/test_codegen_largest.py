"""The fold `largest`: the largest number, NaN passed over; and what is built on that."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.ops import parse_workload
from autotune.runtime.function import KernelFunction
from autotune.schedule import Schedule
from autotune.search_spaces.space.registry import default_config, make_schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, compute, largest_, placeholder, reduce_axis
from autotune.tensor.evaluate import evaluate

T = Target.parse("native -num-cores=1")
ROWS = np.array(
    [[1, math.nan, 3, -math.inf] * 16, [math.nan] * 64, [-math.inf] * 64, [math.inf, 1, 2, -math.inf] * 16,
     [-5, -4, -3.5, -4] * 16], np.float32
)  # fmt: skip


@pytest.mark.parametrize("lanes", [0, 16])
def test_nan_is_passed_over(lanes: int) -> None:
    x, j = placeholder(ROWS.shape, name="x"), reduce_axis(64, "j")
    y = compute(ROWS.shape[:1], lambda i: largest_(x[i, j], j), name="y")
    schedule = Schedule(ComputeDef.build([x], [y]))
    if lanes:
        schedule = schedule.split("y", "j", lanes).vectorize("y", "j.1")
    (got,) = KernelFunction([x], build_kernel(schedule, T), T)(ROWS)
    assert np.array_equal(got, np.array([3, -math.inf, -math.inf, math.inf, -3.5], np.float32))


def test_softmax_of_rows_without_numbers() -> None:
    workload = parse_workload("softmax data=5,64 axis=-1")
    schedule = make_schedule(workload, default_config(workload, T), T)
    (got,) = KernelFunction(schedule.compute.inputs, build_kernel(schedule, T), T)(ROWS)
    expected = evaluate(schedule.compute, {"in0": ROWS})["out0"]
    assert np.isnan(got[:4]).all() and np.isnan(expected[:4]).all()
    assert np.allclose(got[4], expected[4], rtol=1e-6)
