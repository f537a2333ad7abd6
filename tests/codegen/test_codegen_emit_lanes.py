"""Vectorized loops whose lanes are switched off, gathered, or read indirectly."""

from __future__ import annotations

from autotune.schedule import Schedule
from autotune.tensor import ComputeDef, Layout, compute, placeholder, read, reduce_axis, select, sum_
from tests.conftest import Right


def test_lanes_that_are_off_touch_no_memory(right: Right) -> None:
    a, b = placeholder((24, 3), name="in0"), placeholder((16, 24), name="in1")
    k = reduce_axis(24, "k")
    c = compute((3, 16), lambda i, j: sum_(a[k, i] * b[j, k], k), name="C")  # `a` is gathered: stride 3
    s = Schedule(ComputeDef.build([a, b], [c])).split("C", "k", 16).vectorize("C", "k.1")
    right(s)


def test_every_lane_reads_its_own_indirect_index(right: Right) -> None:
    x, where = placeholder((20, 3), name="in0"), placeholder((19,), "i64", "in1")
    y = compute((19, 3), lambda i, j: x[where[i], j], name="y")
    s = Schedule(ComputeDef.build([x, where], [y])).split("y", "i", 8).reorder("y", "j", "i.1").vectorize("y", "i.1")
    right(s)


def test_conditions_on_values_differ_between_gathered_lanes(right: Right) -> None:
    x, flag = placeholder((5, 8), name="in0"), placeholder((8,), "bool", "in1")
    y = compute((5, 8), lambda i, j: read(x, (i, j), when=flag[j]), name="y")
    s = Schedule(ComputeDef.build([x, flag], [y])).layout("in0", Layout.blocked(2, [(1, 3)]))
    right(s.vectorize("y", "j"))


def test_a_tail_and_a_known_mask_together(right: Right) -> None:
    x, z = placeholder((24,), "i64", name="in0"), placeholder((24,), "i64", name="in1")
    y = compute((24,), lambda i: select(x[i] < z[i], x[i], z[i]), name="y")
    s = Schedule(ComputeDef.build([x, z], [y])).split("y", "i", 1).split("y", "i.1", 8).vectorize("y", "i.1.1")
    s = s.split("y", "i.0", 16)  # i.0 may overhang, and of i.1.1 only one lane counts
    right(s)
    right(s, target="x86 -mcpu=haswell -num-cores=2")
