"""Loop nests as text: what schedules turn into, and that they compute the right thing."""

from __future__ import annotations

from autotune.lower import lower, print_program
from autotune.ops.parse import parse_workload
from autotune.ops.registry import compute_def
from autotune.schedule import Schedule
from autotune.search_spaces.operators import conv2d_direct
from autotune.search_spaces.space.config import Config
from autotune.target import Target
from autotune.tensor import (
    ComputeDef,
    DType,
    Expr,
    Layout,
    Tensor,
    arg_reducer,
    compute,
    compute_many,
    maximum,
    placeholder,
    read,
    reduce,
    reduce_axis,
    scan,
    sum_,
)
from tests.conftest import Golden, Right


def matmul(m: int, n: int, k: int) -> tuple[list[Tensor], Tensor]:
    a, b = placeholder((m, k), name="in0"), placeholder((k, n), name="in1")
    r = reduce_axis(k, "k")
    return [a, b], compute((m, n), lambda i, j: sum_(a[i, r] * b[r, j], r), name="C")


def nest(s: Schedule) -> str:
    return f"{s}\n\n{print_program(lower(s))}"


def test_matmul_tiled_with_tails(golden: Golden, right: Right) -> None:
    inputs, c = matmul(65, 20, 32)
    d = compute((65, 20), lambda i, j: maximum(c[i, j], 0.0), name="D")
    s = Schedule(ComputeDef.build(inputs, [d]))
    s = s.split("D", "i", 14).split("D", "j", 16).reorder("D", "i.0", "j.0", "i.1", "j.1")
    s = s.unroll("D", "i.1").vectorize("D", "j.1").compute_at("C", "D", "j.0", "register")
    s = s.reorder("C", "k", "i", "j").unroll("C", "i").vectorize("C", "j").partition("D", "i.0").partition("D", "j.0")
    s = s.parallel("D", "i.0")
    golden(nest(s))
    right(s)


def test_conv2d_direct_template(golden: Golden, right: Right) -> None:
    workload = parse_workload("conv2d data=1,20,9,9 weight=24,20,3,3 pad=1")
    config = Config.of(
        lanes=16, oc_vectors=1, ow_tile=4, oh_tile=1, ic_unroll=1, order="khw", unroll_kw=False, skip_rows=False
    )
    target = Target.parse("x86 -mcpu=znver4 -num-cores=1")
    s = conv2d_direct.DirectConv2d().schedule(workload, config, target, None)
    golden(nest(s))
    right(s)


def test_softmax_rows(golden: Golden, right: Right) -> None:
    s = Schedule(compute_def(parse_workload("softmax data=12,37")))
    out = "out0"
    rows = s.state.stage(out).loops[0].name
    s = s.parallel(out, rows)
    for producer in reversed(s.state.stages[:-1]):
        s = s.compute_at(producer.name, out, rows)
    for stage in (out, "softmax_exp"):
        last = s.state.stage(stage).loops[-1].name
        s = s.split(stage, last, 16).vectorize(stage, f"{last}.1")
    golden(nest(s))
    right(s)


def test_k_blocking_by_rfactor(golden: Golden, right: Right) -> None:
    inputs, c = matmul(12, 16, 100)
    s = Schedule(ComputeDef.build(inputs, [c])).rfactor("C", "k", 32)
    s = s.reorder("C", "k.o", "i", "j").compute_at("C.rf", "C", "k.o").vectorize("C", "j")
    s = s.reorder("C.rf", "k.i", "i", "j").vectorize("C.rf", "j")
    golden(nest(s))
    right(s)


def test_lanes_as_partial_sums(golden: Golden, right: Right) -> None:
    inputs, c = matmul(5, 3, 70)
    s = Schedule(ComputeDef.build(inputs, [c])).rfactor("C", "k", 8, "inner").compute_at("C.rf", "C", "j", "register")
    s = s.reorder("C.rf", "i", "j", "k.o", "k.i").vectorize("C.rf", "k.i").unroll("C", "k.i")
    golden(nest(s))
    right(s)


def test_outputs_with_halo_and_block_padding(golden: Golden, right: Right) -> None:
    x = placeholder((1, 5, 6, 7), name="in0")
    y = compute((1, 5, 6, 7), lambda n, c, h, w: x[n, c, h, w] + 1.0, name="y")
    s = Schedule(ComputeDef.build([x], [y]))
    s = s.layout("y", Layout.blocked(4, [(1, 4)]).with_halo(((0, 0), (0, 0), (1, 2), (0, 1))))
    s = s.split("y", "c", 4).reorder("y", "c.0", "h", "w", "c.1").vectorize("y", "c.1")
    golden(nest(s))
    right(s)


def test_padded_axis_writes_zeros_beyond_the_output(golden: Golden, right: Right) -> None:
    x = placeholder((6, 21), name="in0")
    y = compute((6, 21), lambda i, j: x[i, j] + 1.0, name="y")
    s = Schedule(ComputeDef.build([x], [y])).layout("in0", Layout.blocked(2, [(1, 8)]))
    s = s.layout("y", Layout.blocked(2, [(1, 8)])).split("y", "j", 8).vectorize("y", "j.1").pad("y", "j")
    golden(nest(s))
    right(s)


def test_partition_into_interior_and_edges(golden: Golden, right: Right) -> None:
    x = placeholder((4, 30), name="in0")
    k = reduce_axis(3, "k")

    def tap(i: Expr, j: Expr) -> Expr:
        return sum_(read(x, (i, j + k.var - 1), when=(j + k.var >= 1) & (j + k.var < 31)), k)

    y = compute((4, 30), tap, name="y")
    s = Schedule(ComputeDef.build([x], [y])).split("y", "j", 8).partition("y", "j.0").unroll("y", "k")
    golden(nest(s))
    right(s)


def test_scan(golden: Golden, right: Right) -> None:
    x = placeholder((40, 19), name="in0")
    y = scan((40, 19), 0, lambda before, t, j: before * 0.5 + x[t, j], name="h")
    s = Schedule(ComputeDef.build([x], [y])).split("h", "j", 8).reorder("h", "j.0", "t", "j.1").vectorize("h", "j.1")
    s = s.parallel("h", "j.0")
    golden(nest(s))
    right(s)


def test_argmax(golden: Golden, right: Right) -> None:
    x, k = placeholder((9, 50), name="in0"), reduce_axis(50, "k")
    largest = arg_reducer("argmax", DType.f32)
    _, place = compute_many((9,), lambda i: reduce(largest, (x[i, k], k.var), k), ("value", "place"))
    s = Schedule(ComputeDef.build([x], [compute((9,), lambda i: place[i], name="out0")]))
    name = "value"
    row, axis = (loop.name for loop in s.state.stage(name).loops)
    s = s.rfactor(name, axis, 8, "inner")
    partial = f"{name}.rf"
    s = s.compute_at(partial, name, row)
    last = s.state.stage(partial).loops[-1].name
    s = s.reorder(partial, last, f"{axis}.i").vectorize(partial, f"{axis}.i")
    golden(nest(s))
    right(s)


def test_indirect_reads_are_clamped(golden: Golden, right: Right) -> None:
    x, where = placeholder((20, 16), name="in0"), placeholder((6,), "i64", "in1")
    y = compute((6, 16), lambda i, j: x[where[i], j], name="y")
    s = Schedule(ComputeDef.build([x, where], [y])).layout("in0", Layout.blocked(2, [(0, 4)])).vectorize("y", "j")
    golden(nest(s))
    right(s)
