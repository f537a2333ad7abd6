"""Schedules written from primitives alone, for what no template does: attention in one kernel, split-K products."""

from __future__ import annotations

from autotune.ops.registry import compute_def
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.schedule import Schedule
from autotune.schedule.state import REGISTER
from autotune.target import Target


def _input(*shape: int, constant: bool = False) -> WorkloadInput:
    return WorkloadInput(TensorType("f32", shape), constant)


def attention(heads: int, length: int, width: int) -> Workload:
    """softmax(q·k·scale + mask)·v: q, v (heads, length, width), k (heads, width, length), mask (length, length)."""
    product = {"trans_a": False, "trans_b": False}
    return Workload(
        (
            _input(heads, length, width),
            _input(heads, width, length),
            _input(heads, length, width),
            _input(length, length),
            _input(1, constant=True),
        ),
        (
            WorkloadNode.make("matmul", (0, 1), **product),
            WorkloadNode.make("mul", (5, 4)),
            WorkloadNode.make("add", (6, 3)),
            WorkloadNode.make("softmax", (7,), axis=-1),
            WorkloadNode.make("matmul", (8, 2), **product),
        ),
        (9,),
    )


def row_blocked(workload: Workload, target: Target, rows: int = 8) -> Schedule:
    """Attention in one kernel: for each block of rows the scores, the softmax and the product with the values.

    A thread keeps the scores of its block in its own scratch memory; nothing else is ever stored.
    """
    lanes = target.lanes(4)
    s = Schedule(compute_def(workload)).inline("mul").inline("softmax").cache_write("out0").cache_write("matmul")
    head, row, column = (axis.name for axis in s.state.stage("out0").stage.axes)
    s = s.split("out0", row, rows)
    s = s.fuse("out0", head, f"{row}.0").parallel("out0", f"{head}*{row}.0")
    block, row = f"{head}*{row}.0", f"{row}.1"
    s = _tiled_copy(s, "out0", row, column, lanes)
    for stage in ("softmax_scale", "softmax_sum", "softmax_exp", "softmax_max", "add", "matmul"):
        s = s.compute_at(stage, "out0", block)
    for stage in ("softmax_exp", "add"):
        s = _vectorized(s, stage, s.state.stage(stage).stage.axes[-1].name, lanes)
    for stage in ("softmax_sum", "softmax_max"):
        s = _vectorized(s, stage, s.state.stage(stage).stage.reduce_axes[0].name, lanes)
    *_, row, column = (axis.name for axis in s.state.stage("matmul").stage.axes)
    return _tiled_copy(s, "matmul", row, column, lanes)


def split_k(workload: Workload, target: Target, parts: int = 8) -> Schedule:
    """A matrix product whose sum is shared among the threads: partial sums, a barrier, then their sum."""
    lanes = target.lanes(4)
    s = Schedule(compute_def(workload))
    (k,) = s.state.stage("out0").stage.reduce_axes
    s = s.rfactor("out0", k.name, -(-k.extent // parts)).cache_write("out0.rf")
    row, column = (axis.name for axis in s.state.stage("out0").stage.axes)
    part = f"{k.name}.o"
    s = s.parallel("out0.rf", part).split("out0.rf", row, 8)
    s = _tiled_copy(s, "out0.rf", f"{row}.1", column, lanes)
    s = s.split("out0", column, lanes).reorder("out0", row, f"{column}.0", part, f"{column}.1")
    return s.vectorize("out0", f"{column}.1").parallel("out0", row)


def _tiled_copy(s: Schedule, stage: str, row: str, column: str, lanes: int) -> Schedule:
    """Copy `stage` from its cache a vector of columns at a time; the cache, a product, is summed in registers there."""
    product = f"{stage}.c"
    s = s.split(stage, column, lanes).reorder(stage, f"{column}.0", row, f"{column}.1")
    s = s.unroll(stage, row).vectorize(stage, f"{column}.1").compute_at(product, stage, f"{column}.0", REGISTER)
    *others, i, j = (axis.name for axis in s.state.stage(product).stage.axes)
    (k,) = (axis.name for axis in s.state.stage(product).stage.reduce_axes)
    return s.reorder(product, *others, k, i, j).unroll(product, i).vectorize(product, j)


def _vectorized(s: Schedule, stage: str, axis: str, lanes: int) -> Schedule:
    return s.split(stage, axis, lanes).vectorize(stage, f"{axis}.1")
