"""The language carries what has no template: searches, running sums and normalisations over several stages, by hand."""

from __future__ import annotations

import pytest

from autotune.ops import parse_workload
from autotune.ops.registry import compute_def
from autotune.schedule import Schedule
from autotune.tensor import ComputeDef, compute, max_, placeholder, read, reduce_axis, scan, sum_, unary
from tests.conftest import Right


@pytest.mark.parametrize("columns", [1, 7, 64, 1000])
@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_argmax_searches_strided_lanes_and_then_among_their_winners(right: Right, columns: int, lanes: int) -> None:
    s = Schedule(compute_def(parse_workload(f"argmax data=5,{columns} axis=1")))
    search = next(x for x in s.state.stages if x.stage.reducer is not None)
    row, *_, k = (loop.name for loop in search.loops)
    s = s.rfactor(search.name, k, min(lanes, columns), keep="inner").parallel(search.name, row)
    partial = f"{search.name}.rf"
    s = s.compute_at(partial, search.name, row).reorder(partial, f"{k}.o", f"{k}.i")
    right(s.vectorize(partial, f"{k}.i"))


@pytest.mark.parametrize(("blocks", "size"), [(1, 1), (3, 5), (8, 32), (5, 100)])
def test_a_running_sum_is_shared_among_threads_in_blocks(right: Right, blocks: int, size: int) -> None:
    """Sums inside each block, a running sum of the blocks' totals, and the two together (Blelloch, 1990)."""
    x = placeholder((blocks, size), name="in0")
    inside = scan((blocks, size), 1, lambda before, b, i: before + x[b, i], name="inside")
    carried = scan(
        (blocks,),
        0,
        lambda before, b: before + read(inside, (b - 1, size - 1), when=b >= 1, otherwise=0.0),
        name="carried",
    )
    out = compute((blocks, size), lambda b, i: inside[b, i] + carried[b], name="out0")
    s = Schedule(ComputeDef.build([x], [out]))
    s = s.parallel("inside", "b").parallel("out0", "b").split("out0", "i", 8).vectorize("out0", "i.1")
    right(s)


@pytest.mark.parametrize(("rows", "columns"), [(4, 33), (9, 128), (1, 1)])
def test_a_softmax_of_row_blocks_keeps_its_stages_in_scratch(right: Right, rows: int, columns: int) -> None:
    x = placeholder((rows, columns), name="in0")
    j, k = reduce_axis(columns, "j"), reduce_axis(columns, "k")
    top = compute((rows,), lambda i: max_(x[i, k], k), name="top")
    e = compute((rows, columns), lambda i, c: unary("exp", x[i, c] - top[i]), name="e")
    total = compute((rows,), lambda i: sum_(e[i, j], j), name="total")
    out = compute((rows, columns), lambda i, c: e[i, c] / total[i], name="out0")
    s = Schedule(ComputeDef.build([x], [out])).split("out0", "i", 2).split("out0", "c", 16).vectorize("out0", "c.1")
    s = s.parallel("out0", "i.0").compute_at("total", "out0", "i.0").compute_at("e", "out0", "i.0")
    s = s.compute_at("top", "out0", "i.0", "register").unroll("top", "i")
    for stage, axis in (("top", "k"), ("e", "c"), ("total", "j")):
        s = s.split(stage, axis, 16).vectorize(stage, f"{axis}.1")
    right(s)
