"""What lies around an output's data is zero: written by the padded stage itself, or by loops of its own."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.lower import lower, print_program
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.reference import reference_of
from autotune.measure.verify import verify
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, Layout, compute, max_, placeholder, reduce_axis, sum_, unary

FORMS = {
    "x + b": lambda x, b: x + b,
    "x * exp(b)": lambda x, b: x * unary("exp", b),
    "exp(x)": lambda x, b: unary("exp", x) + b,
    "x + 1": lambda x, b: x + b + 1.0,
}


def pointwise(form: str, block: int = 8) -> Schedule:
    x, b = placeholder((3, 13), name="in0"), placeholder((1, 13), name="in1")
    y = compute((3, 13), lambda i, j: FORMS[form](x[i, j], b[0, j]), name="y")
    s = Schedule(ComputeDef.build([x, b], [y]))
    for name in ("in0", "in1", "y"):
        s = s.layout(name, Layout.blocked(2, [(1, block)]))
    return s


def right(s: Schedule) -> bool:
    rng = np.random.default_rng(0)
    inputs = tuple(rng.standard_normal(t.shape).astype(np.float32) for t in s.compute.inputs)
    with Bench(build_kernel(s, Target.parse("native")), TaskData(reference_of(s.compute, inputs)), 2) as bench:
        return not isinstance(verify(bench, [ThreadPool(1), ThreadPool(2)]), Failure)


@pytest.mark.parametrize(
    ("form", "chosen"), [("x + b", False), ("x * exp(b)", False), ("exp(x)", True), ("x + 1", True)]
)
def test_padding_is_selected_only_where_the_value_is_not_zero_anyway(form: str, chosen: bool) -> None:
    s = pointwise(form).split("y", "j", 8).pad("y", "j").vectorize("y", "j.1")
    text = print_program(lower(s))
    assert ("select" in text) == chosen
    assert "halo" not in text  # no loops beside the stage's own
    assert right(s)


@pytest.mark.parametrize("block", [8, 16, 4])
def test_a_stage_that_stops_at_its_extent_gets_its_padding_zeroed(block: int) -> None:
    s = pointwise("x + 1", block)
    assert "halo" in print_program(lower(s))
    assert right(s)
    assert right(s.split("y", "j", 8).vectorize("y", "j.1"))


def test_halo_and_padding_together() -> None:
    s = pointwise("x + 1").layout("y", Layout.blocked(2, [(1, 8)]).with_halo(((2, 1), (0, 0))))
    assert right(s)
    assert right(s.split("y", "j", 8).pad("y", "j").vectorize("y", "j.1"))


def folded(kind: str) -> Schedule:
    x, k = placeholder((3, 13), name="in0"), reduce_axis(3, "k")
    fold = {"sum": sum_, "max": max_}[kind]
    y = compute((13,), lambda j: fold(x[k.var, j], k), name="y")
    s = Schedule(ComputeDef.build([x], [y]))
    s = s.layout("in0", Layout.blocked(2, [(1, 8)])).layout("y", Layout.blocked(1, [(0, 8)]))
    return s.split("y", "j", 8).pad("y", "j")


def test_a_padded_output_may_fold() -> None:
    assert right(folded("sum"))
    assert right(folded("max"))
