"""Lanes of floats that become integers: saturated, towards zero, NaN to 0, as single elements do."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.reference import reference_of
from autotune.measure.verify import verify
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, DType, cast, compute, placeholder

INTEGERS = [d for d in DType if d.is_int]


def ends(source: DType, to: DType) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Numbers around the ends of a range, and those that are none."""
    info = np.iinfo(to.numpy)
    around = [float(e) + d for e in (info.min, info.max) for d in (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)]
    twice = [2.0 * float(e) for e in (info.min, info.max)]
    plain = [0.0, -0.0, 0.5, -0.5, -0.99, 2.5, -2.5, 1e30, -1e30, np.inf, -np.inf, np.nan]
    return np.resize(np.asarray(around + twice + plain), 32).astype(source.numpy)


@pytest.mark.parametrize("target", ["native", "x86 -mcpu=haswell"])
@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize("source", [DType.f32, DType.f64])
def test_every_integer(source: DType, lanes: int, target: str) -> None:
    inputs = [placeholder((32,), source, f"in{n}") for n in range(len(INTEGERS))]
    outputs = [
        compute((32,), lambda i, x=x, d=d: cast(d, x[i]), f"to_{d}") for x, d in zip(inputs, INTEGERS, strict=True)
    ]
    s = Schedule(ComputeDef.build(inputs, outputs))
    if lanes > 1:
        for t in outputs:
            s = s.split(t.name, "i", lanes).vectorize(t.name, "i.1")
    data = TaskData(reference_of(s.compute, tuple(ends(source, d) for d in INTEGERS)))
    with Bench(build_kernel(s, Target.parse(target)), data, 1) as bench:
        assert not isinstance(verify(bench, [ThreadPool(1)]), Failure)
