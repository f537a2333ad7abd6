"""What LLVM's NewGVN did wrong to a correct kernel, and must not do again."""

from __future__ import annotations

from autotune.ops.parse import parse_workload
from autotune.ops.registry import compute_def
from autotune.schedule import Schedule
from tests.conftest import Right


def test_conditions_of_inner_loops_are_not_carried_by_outer_ones(right: Right) -> None:
    workload = parse_workload("conv2d data=1,4,8,19 weight=5,4,3,3 pad=0,2,1,3 stride=2,1")
    right(Schedule(compute_def(workload)).unroll("out0", "s"))
