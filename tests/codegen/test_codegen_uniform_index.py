"""Elements at a run-time place that is the same in all lanes are one vector load."""

from __future__ import annotations

import numpy as np

from autotune.codegen.kernel import build_kernel, generate
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.reference import reference_of
from autotune.measure.verify import verify
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, compute, placeholder


def test_rows_at_places_read_from_memory() -> None:
    x, i = placeholder((9, 32), "f32", "in0"), placeholder((5,), "i64", "in1")
    definition = ComputeDef.build([x, i], [compute((5, 32), lambda n, j: x[i[n], j], name="y")])
    schedule = Schedule(definition).split("y", "j", 8).vectorize("y", "j.1")
    target = Target.parse("native")
    text = str(generate(schedule, target).ir)
    assert "load <8 x float>" in text
    assert "insertelement" not in text
    inputs = (np.random.default_rng(0).standard_normal((9, 32)).astype(np.float32), np.asarray([3, 0, 8, 8, 1]))
    with Bench(build_kernel(schedule, target), TaskData(reference_of(definition, inputs)), 2) as bench:
        assert not isinstance(verify(bench, [ThreadPool(1)]), Failure)
