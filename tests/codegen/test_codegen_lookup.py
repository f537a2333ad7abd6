"""Lookups in tables of a register: by permutation, by arithmetic, one by one, with bits above that do not count."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.errors import WorkloadError
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.reference import reference_of
from autotune.measure.verify import verify
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, compute, const, placeholder
from autotune.tensor.expr import lookup


@pytest.mark.parametrize("target", ["native", "x86 -mcpu=haswell"])
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_every_size(count: int, dtype: str, lanes: int, target: str) -> None:
    codes = np.random.default_rng(0).integers(0, 1 << 32, 64, np.uint32)
    tables = [tuple(range(-3, count - 3)), tuple(2.5 * n for n in range(count)), tuple(1.3**n for n in range(count))]
    x = placeholder(codes.shape, "u32", "in0")
    outputs = [compute(codes.shape, lambda i, v=v: lookup(v, x[i], dtype), f"out{n}") for n, v in enumerate(tables)]
    outputs.append(compute(codes.shape, lambda i: lookup(tables[2], const(5, "u32"), dtype), "out3"))
    s = Schedule(ComputeDef.build([x], outputs))
    for t in outputs if lanes > 1 else []:
        s = s.split(t.name, "i", lanes).vectorize(t.name, "i.1")
    again = ComputeDef.from_json(s.compute.to_json())
    assert again.key == s.compute.key
    with Bench(build_kernel(s, Target.parse(target)), TaskData(reference_of(again, (codes,))), 1) as bench:
        found = verify(bench, [ThreadPool(1)])
    assert not isinstance(found, Failure), found


def test_tables_that_fit_no_register() -> None:
    x = placeholder((4,), "u32", "x")
    for values in ((1.0, 2.0, 3.0), tuple(map(float, range(32)))):
        with pytest.raises(WorkloadError, match="of 2, 4, 8 or 16 values"):
            lookup(values, x[0])
    with pytest.raises(WorkloadError, match="by i32"):
        lookup((1.0, 2.0), placeholder((4,), "i32", "y")[0])
