"""Terms of a sum that are zero whatever is read."""

from __future__ import annotations

import numpy as np

from autotune.codegen.kernel import build_kernel
from autotune.lower import lower, print_program
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.reference import reference_of
from autotune.measure.verify import verify
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, Expr, compute, placeholder, read, reduce_axis, sum_


def lower_half(both: bool) -> Schedule:
    """y[i] = sum of x[i, k] * v[k] for k <= i, with the condition on both factors or on one."""
    x, v = placeholder((6, 6), name="in0"), placeholder((6,), name="in1")
    k = reduce_axis(6, "k")

    def body(i: Expr) -> Expr:
        factor = read(v, (k.var,), when=k.var <= i) if both else v[k]
        return sum_(read(x, (i, k.var), when=k.var <= i) * factor, k)

    return Schedule(ComputeDef.build([x, v], [compute((6,), body, name="y")]))


def test_a_product_of_zeros_is_skipped() -> None:
    s = lower_half(True)
    text = print_program(lower(s))
    assert "if y.i - y.k >= 0:" in text
    assert "else" not in text
    rng = np.random.default_rng(0)
    inputs = tuple(rng.standard_normal(t.shape).astype(np.float32) for t in s.compute.inputs)
    with Bench(build_kernel(s, Target.parse("native")), TaskData(reference_of(s.compute, inputs)), 2) as bench:
        assert not isinstance(verify(bench, [ThreadPool(1)], "direct"), Failure)


def test_a_factor_that_may_be_infinite_is_not() -> None:
    """0 * inf is no zero."""
    assert "if y.i - y.k >= 0 else 0" in print_program(lower(lower_half(False)))
