"""Leaving out the products with padding."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.compiler.compile import compile_graph
from autotune.errors import LoweringError, ScheduleError
from autotune.graph.builder import GraphBuilder
from autotune.graph.ir import Output, Value
from autotune.lower import lower, print_program
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.reference import make_reference
from autotune.measure.verify import verify
from autotune.ops import compute_def, parse_workload
from autotune.ops.workload import Workload
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.search_spaces.library.unread import skip_what_nobody_reads
from autotune.target import Target
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, read
from autotune.tensor.layout import Layout
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_

WORKLOAD = parse_workload("conv2d data=1,3,6,5 weight=4,3,3,3 pad=1")


def with_border() -> Schedule:
    """All taps can be read: nothing is tested unless the schedule asks."""
    return Schedule(compute_def(WORKLOAD)).layout(
        "in0", Layout.row_major(4).with_halo(((0, 0), (0, 0), (1, 1), (1, 1)))
    )


def right(s: Schedule, workload: Workload = WORKLOAD) -> bool:
    with Bench(build_kernel(s, Target.parse("native")), TaskData(make_reference(workload)), 2) as bench:
        return not isinstance(verify(bench, [ThreadPool(1)]), Failure)


def conditions(s: Schedule) -> list[str]:
    return [line.strip() for line in print_program(lower(s)).splitlines() if line.strip().startswith("if ")]


def test_rows_of_taps_in_padding_are_not_added() -> None:
    assert conditions(with_border()) == []
    s = with_border().skip_padding("out0", "in0", 2)
    assert conditions(s) == ["if out0.oh + out0.r - 1 >= 0 and -out0.oh - out0.r + 6 >= 0:"]
    assert right(s)


def test_columns_of_unrolled_loops() -> None:
    s = with_border().skip_padding("out0", "in0", 3).skip_padding("out0", "in0", 2)
    s = s.reorder("out0", "n", "k", "oh", "c", "r", "ow", "s").unroll("out0", "ow").unroll("out0", "s")
    rows, columns = conditions(s)
    assert rows == "if out0.oh + out0.r - 1 >= 0 and -out0.oh - out0.r + 6 >= 0:"
    assert columns == "if out0.ow + out0.s - 1 >= 0 and -out0.ow - out0.s + 5 >= 0:"
    assert right(s)


def test_columns_of_a_tile_that_all_lie_in_padding() -> None:
    """Of a tile of three columns the last one decides whether the first taps count, and the first one the last taps."""
    wide = parse_workload("conv2d data=1,2,5,9 weight=4,2,3,3 pad=4 dilation=4")
    s = Schedule(compute_def(wide)).layout("in0", Layout.row_major(4).with_halo(((0, 0), (0, 0), (4, 4), (4, 4))))
    s = s.skip_padding("out0", "in0", 3, tiles=True).split("out0", "ow", 3)
    s = s.reorder("out0", "n", "k", "oh", "ow.0", "c", "r", "s", "ow.1").unroll("out0", "ow.1")
    (condition,) = conditions(s)
    assert condition == "if 3*out0.ow.0 + 4*out0.s - 2 >= 0 and -3*out0.ow.0 - 4*out0.s + 12 >= 0:"
    assert right(s, wide)


@pytest.mark.parametrize(
    ("tensor", "dimension", "message"),
    [("in1", 2, "without padding"), ("in0", 1, "not padded along dimension 1"), ("in0", 7, "no dimension 7"),
     ("in7", 2, "not one factor")],
)  # fmt: skip
def test_what_is_not_padded_is_refused(tensor: str, dimension: int, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Schedule(compute_def(WORKLOAD)).skip_padding("out0", tensor, dimension)


def test_only_sums_may_leave_out_zeros() -> None:
    pool = Schedule(compute_def(parse_workload("max_pool data=1,3,6,5 kernel=3,3 pad=1")))
    with pytest.raises(ScheduleError, match="no sum"):
        pool.skip_padding("out0", "in0", 2)


def test_bands_of_groups_are_padding_along_channels() -> None:
    grouped = parse_workload("conv2d data=1,12,3,3 weight=12,6,1,1 groups=2")
    s = Schedule(compute_def(grouped, "bands8")).precompute("bands_w").skip_padding("out0", "in0", 1)
    (condition,) = conditions(s.reorder("out0", "n", "k", "b", "o0", "o1", "c", "r0", "r1"))
    assert "out0.b" in condition and "out0.c" not in condition
    assert right(s, grouped)


def test_padding_that_is_not_affine_is_refused_in_one_line() -> None:
    x = Tensor("x", (9,), DType.f32)
    k = reduce_axis(3, "k")

    def body(i: Expr) -> Reduction:
        return sum_(read(x, (i + k.var,), when=(i * k.var) < 5) * 2.0, k)

    s = Schedule(ComputeDef.build([x], [compute((7,), body, "y", ("i",))], ["y"])).skip_padding("y", "x", 0)
    with pytest.raises(LoweringError, match="y: nothing can be left out where .*, which is not affine"):
        lower(s)


def test_elements_that_every_reader_leaves_out_are_not_computed() -> None:
    attention = parse_workload(
        "attention q=2,2,1,8 k=2,2,7,8 v=2,2,7,8 lengths=2:i64 extras=lengths q_heads=2 kv_heads=2"
    )
    s = Schedule(compute_def(attention)).inline("attention_logits")
    s = s.skip_unread("attention_products")
    assert "if ((attention_products.j) < in3[attention_products.b]):" in conditions(s)
    assert right(s, attention)
    s = s.split("attention_products", "j", 4).unroll("attention_products", "j.1")
    assert "if ((4*attention_products.j.0) < in3[attention_products.b]):" in conditions(s)
    assert right(s, attention)
    with pytest.raises(ScheduleError, match="its readers look at all of it"):
        s.skip_unread("attention_exp")
    with pytest.raises(ScheduleError, match="its readers look at all of it"):
        s.skip_unread("out0")


def test_what_a_stage_leaves_out_it_reads_nothing_for() -> None:
    rows = parse_workload("softmax data=6,5 axis=1 + until end=scalar:i64 axis=0")
    s = Schedule(compute_def(rows))
    last = [stage.name for stage in s.state.stages if stage.name != "out0"]
    for name in reversed(last):
        s = s.skip_unread(name)
    text = conditions(s)
    assert all(f"if (({name}.i0) < in1[]):" in text for name in last)
    first = next(stage.name for stage in s.state.stages)
    with pytest.raises(ScheduleError, match="its readers look at all of it"):
        Schedule(compute_def(rows)).skip_unread(first)


def test_ends_are_tested_around_the_sum_not_in_its_loops_of_one_turn() -> None:
    ends = parse_workload("matmul a=4,6,8 b=8,8 + until end=scalar:i64 axis=0")
    s = Schedule(compute_def(ends)).compute_at("matmul", "out0", "i0")
    s = s.reorder("matmul", "k", "b0", "i", "j").skip_unread("matmul")  # one turn along b0 remains
    lines = [line.strip() for line in print_program(lower(s)).splitlines()]
    assert lines[lines.index("for out0.i0 in 0..4:") + 1] == "if ((out0.i0) < in2[]):"
    assert right(s, ends)


def test_the_rest_of_a_result_is_left_as_it_was() -> None:
    ends = parse_workload("matmul a=2,6,8 b=8,8 + until end=scalar:i64 axis=1 rest=any")
    s = Schedule(compute_def(ends)).compute_at("matmul", "out0", "i1")
    assert skip_what_nobody_reads(s, ends).steps[-2:] == (("leave_rest", "out0", 1), ("skip_unread", "matmul"))
    s = s.leave_rest("out0", 1).skip_unread("matmul")
    assert "if ((out0.i1) < in2[]):" in conditions(s)
    reference = make_reference(ends)
    a, b, end = reference.inputs
    assert int(end) == 6 and right(s, ends)  # what is timed is all of it
    graph = GraphBuilder("rest")
    names = [graph.input(Value(name, kind.type.dtype, kind.type.shape)) for name, kind in zip("abn", ends.inputs)]
    product = graph.emit("matmul", tuple(names[:2]), trans_a=False, trans_b=False)
    y = graph.emit("until", (product, names[2]), axis=1, rest="any")
    program = compile_graph(graph.build([Output("y", y)]), Target.parse("native -num-cores=1"))
    (found,) = program.run({"a": a, "b": b, "n": np.asarray(4)})
    np.testing.assert_allclose(found[:, :4], (a @ b)[:, :4], rtol=1e-4, atol=1e-5)
    with pytest.raises(ScheduleError, match="no end from data along dimension 2"):
        s.leave_rest("out0", 2)


def test_zeros_behind_an_end_are_written_where_somebody_may_read_them() -> None:
    ends = parse_workload("softmax data=6,5 axis=1 + until end=scalar:i64 axis=0")
    s = skip_what_nobody_reads(Schedule(compute_def(ends)), ends)
    assert all(step[0] == "skip_unread" for step in s.steps) and right(s, ends)
