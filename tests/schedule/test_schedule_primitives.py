"""What each primitive does to the printed nest."""

from __future__ import annotations

import pytest

from autotune.lower import lower, print_program
from autotune.schedule import Schedule
from autotune.schedule.registry import documentation, names
from autotune.tensor import (
    ComputeDef,
    Layout,
    compute,
    compute_many,
    maximum,
    placeholder,
    reduce_axis,
    scan,
    sum_,
)


def body(s: Schedule) -> list[str]:
    """The lines of the nest, without the header, less one level of indentation."""
    lines = print_program(lower(s)).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("  ") and line.rstrip().endswith(":"))
    return [line[2:] for line in lines[start:]]


def twice(m: int = 8, n: int = 12) -> Schedule:
    x = placeholder((m, n), name="x")
    return Schedule(ComputeDef.build([x], [compute((m, n), lambda i, j: x[i, j] * 2.0, name="y")]))


def matmul() -> Schedule:
    a, b = placeholder((4, 6), name="A"), placeholder((6, 8), name="B")
    k = reduce_axis(6, "k")
    c = compute((4, 8), lambda i, j: sum_(a[i, k] * b[k, j], k), name="C")
    return Schedule(ComputeDef.build([a, b], [compute((4, 8), lambda i, j: maximum(c[i, j], 0.0), name="D")]))


def test_plain() -> None:
    assert body(twice()) == [
        "on thread 0:",
        "  for y.i in 0..8:",
        "    for y.j in 0..12:",
        "      y[y.i, y.j] = (x[y.i, y.j] * 2.0)",
    ]


def test_split_guards_the_last_round() -> None:
    assert body(twice().split("y", "j", 5))[2:] == [
        "    for y.j.0 in 0..3:",
        "      for y.j.1 in 0..5:",
        "        if -5*y.j.0 - y.j.1 + 11 >= 0:",
        "          y[y.i, 5*y.j.0 + y.j.1] = (x[y.i, 5*y.j.0 + y.j.1] * 2.0)",
    ]


def test_split_by_a_divisor_needs_no_guard() -> None:
    assert "if" not in " ".join(body(twice().split("y", "j", 4)))


def test_nested_split_keeps_inner_rounds_apart() -> None:
    text = " ".join(body(twice(1, 12).split("y", "j", 6).split("y", "j.1", 4)))
    assert "-4*y.j.1.0 - y.j.1.1 + 5 >= 0" in text


def test_reorder() -> None:
    assert body(twice().reorder("y", "j", "i"))[1:3] == ["  for y.j in 0..12:", "    for y.i in 0..8:"]


def test_fuse() -> None:
    assert body(twice().fuse("y", "i", "j"))[1:] == [
        "  for y.i*j in 0..96:",
        "    y[(y.i*j)//12, (y.i*j)%12] = (x[(y.i*j)//12, (y.i*j)%12] * 2.0)",
    ]


def test_split_of_a_fused_loop_gives_the_loops_back() -> None:
    text = body(twice().fuse("y", "i", "j").split("y", "i*j", 12))
    assert text[-1] == "      y[y.i*j.0, y.i*j.1] = (x[y.i*j.0, y.i*j.1] * 2.0)"


@pytest.mark.parametrize("mark", ["vectorize", "unroll"])
def test_marks(mark: str) -> None:
    assert body(twice().then(mark, "y", "j"))[2] == f"    {mark} for y.j in 0..12:"


def test_parallel_needs_no_single_thread() -> None:
    assert body(twice().parallel("y", "i"))[0] == "parallel for y.i in 0..8:"


def test_partition_separates_the_tail() -> None:
    text = body(twice(1, 12).split("y", "j", 5).partition("y", "j.0"))
    assert text == [
        "on thread 0:",
        "  for y.j.0 in 0..2:",
        "    for y.j.1 in 0..5:",
        "      y[0, 5*y.j.0 + y.j.1] = (x[0, 5*y.j.0 + y.j.1] * 2.0)",
        "  for y.j.1 in 0..2:",
        "    y[0, y.j.1 + 10] = (x[0, y.j.1 + 10] * 2.0)",
    ]


def test_inline() -> None:
    x = placeholder((8,), name="x")
    p = compute((8,), lambda i: x[i] + 1.0, name="p")
    s = Schedule(ComputeDef.build([x], [compute((8,), lambda i: p[7 - i] * 2.0, name="y")])).inline("p")
    assert body(s)[-1] == "    y[y.i] = ((x[-y.i + 7] + 1.0) * 2.0)"


def test_compute_at_keeps_what_one_round_needs() -> None:
    s = matmul().compute_at("C", "D", "i")
    assert "  local C: f32[1, 8]" in print_program(lower(s)).splitlines()
    assert body(s) == [
        "on thread 0:",
        "  for D.i in 0..4:",
        "    for C.j in 0..8:",
        "      C[0, C.j] = 0.0",
        "      for C.k in 0..6:",
        "        C[0, C.j] += (A[D.i, C.k] * B[C.k, C.j])",
        "    for D.j in 0..8:",
        "      D[D.i, D.j] = max(C[0, D.j], 0.0)",
    ]


def test_reduction_outside_initialises_first() -> None:
    s = matmul().compute_at("C", "D", "i", "register").reorder("C", "k", "j")
    assert "  register C: f32[1, 8]" in print_program(lower(s)).splitlines()
    assert body(s)[2:7] == [
        "    for C.j in 0..8:",
        "      C[0, C.j] = 0.0",
        "    for C.k in 0..6:",
        "      for C.j in 0..8:",
        "        C[0, C.j] += (A[D.i, C.k] * B[C.k, C.j])",
    ]


def test_stages_at_the_top_level_meet_at_a_barrier() -> None:
    text = body(matmul().parallel("C", "i").parallel("D", "i"))
    assert [line for line in text if not line.startswith(" ")] == [
        "parallel for C.i in 0..4:", "barrier", "parallel for D.i in 0..4:"]  # fmt: skip


def test_layout_blocks() -> None:
    s = twice().layout("y", Layout.blocked(2, [(1, 4)], [1, 0])).split("y", "j", 4)
    assert body(s)[-1] == "        y[y.j.0, y.i, y.j.1] = (x[y.i, 4*y.j.0 + y.j.1] * 2.0)"


def test_pad_drops_the_guard_where_memory_exists() -> None:
    form = Layout.blocked(2, [(1, 8)])
    s = twice().layout("x", form).layout("y", form).split("y", "j", 8).pad("y", "j")
    assert "if" not in " ".join(body(s))


def test_cache_write() -> None:
    text = body(twice().cache_write("y"))
    assert text[3] == "      y.c[y.c.i, y.c.j] = (x[y.c.i, y.c.j] * 2.0)"
    assert text[-1] == "      y[y.i, y.j] = y.c[y.i, y.j]"


def test_cache_read_packs() -> None:
    s = twice(4, 4).cache_read("x", "y").layout("x.r", Layout.blocked(2, [], [1, 0]))
    text = body(s)
    assert text[3] == "      x.r[x.r.i1, x.r.i0] = x[x.r.i0, x.r.i1]"
    assert text[-1] == "      y[y.i, y.j] = (x.r[y.j, y.i] * 2.0)"


def test_rfactor() -> None:
    text = [line.strip() for line in body(matmul().rfactor("C", "k", 4))]
    assert text[text.index("for C.rf.k.i in 0..4:") + 1] == "if -C.rf.k.i - 4*C.rf.k.o + 5 >= 0:"
    k = "C.rf.k.i + 4*C.rf.k.o"
    assert f"C.rf[C.rf.k.o, C.rf.i, C.rf.j] += (A[C.rf.i, {k}] * B[{k}, C.rf.j])" in text
    assert "C[C.i, C.j] += C.rf[C.k.o, C.i, C.j]" in text


def test_prefetch_is_ahead() -> None:
    assert body(twice().prefetch("y", "x", "i", 3))[2] == "    prefetch x[y.i + 3, 0]"
    assert body(twice().prefetch("y", "x", "i", 3, 2))[2] == "    prefetch to L2 x[y.i + 3, 0]"


def test_prefetch_of_a_blocked_tensor_follows_its_layout() -> None:
    s = twice().layout("x", Layout.blocked(2, [(0, 4)])).split("y", "i", 4).prefetch("y", "x", "i.1", 1)
    assert body(s)[3] == "      prefetch x[(y.i.1 + 1)//4 + y.i.0, 0, (y.i.1 + 1)%4]"


def test_scan_reads_the_step_before() -> None:
    x = placeholder((5, 3), name="x")
    s = Schedule(ComputeDef.build([x], [scan((5, 3), 0, lambda before, t, j: before + x[t, j], name="h")]))
    assert body(s)[-1] == "      h[h.t, h.j] = ((h[h.t - 1, h.j] if h.t - 1 >= 0 else 0.0) + x[h.t, h.j])"


def test_two_outputs_are_written_together() -> None:
    x = placeholder((5,), name="x")
    a, b = compute_many((5,), lambda i: (x[i] + 1.0, x[i] - 1.0), ("a", "b"))
    s = Schedule(ComputeDef.build([x], [a, b])).split("a", "i", 2)
    at = "2*a.i.0 + a.i.1"
    assert body(s)[-1].strip() == f"a[{at}], b[{at}] = (x[{at}] + 1.0), (x[{at}] - 1.0)"


def test_a_schedule_does_not_change() -> None:
    s = twice()
    before = (s.to_json(), str(s.state))
    s.split("y", "i", 2).vectorize("y", "j")
    assert (s.to_json(), str(s.state)) == before


def test_keys_name_schedules() -> None:
    assert twice().split("y", "i", 2).key == twice().split("y", "i", 2).key
    assert len({twice().key, twice().split("y", "i", 2).key, twice().split("y", "i", 4).key, twice(8, 13).key}) == 4


def test_steps_alone_rebuild_a_schedule() -> None:
    s = matmul().layout("B", Layout.blocked(2, [(1, 4)])).compute_at("C", "D", "j", "register").unroll("C", "k")
    again = Schedule.replay(s.compute, s.steps_json())
    assert print_program(lower(again)) == print_program(lower(s))
    assert again.steps_json() == s.steps_json()


def test_every_primitive_documents_its_rewrite() -> None:
    missing = [name for name in names() if "rewrite:" not in documentation(name) or "-->" not in documentation(name)]
    assert missing == []
    assert {"split", "reorder", "fuse", "vectorize", "unroll", "parallel", "cache_write", "cache_read", "layout",
            "compute_at", "inline", "rfactor", "partition", "pad", "prefetch", "stream"} <= set(names())  # fmt: skip


def test_partition_of_a_shared_loop_shares_each_part() -> None:
    text = body(twice(12, 2).split("y", "i", 5).parallel("y", "i.0").partition("y", "i.0"))
    assert [line for line in text if "parallel" in line] == [
        "parallel for y.i.0 in 0..2:",
        "parallel for y.i.0 in 2..3:",
    ]
    assert not any(" if " in line for line in text)


def test_each_thread_computes_a_replicated_stage() -> None:
    """In its own memory, before anything that threads share, and without meeting."""
    x = placeholder((6,), name="x")
    p = compute((6,), lambda i: x[i] + 1.0, name="p")
    q = compute((6,), lambda i: p[i] * 3.0, name="q")
    y = compute((4, 6), lambda i, j: q[j] * x[i], name="y")
    s = Schedule(ComputeDef.build([x], [y])).replicate("p").replicate("q").parallel("y", "i")
    text = print_program(lower(s))
    assert "local p: f32[6]" in text and "local q: f32[6]" in text and "barrier" not in text and "thread 0" not in text
    assert body(s)[:5] == [
        "for p.i in 0..6:", "  p[p.i] = (x[p.i] + 1.0)", "for q.i in 0..6:", "  q[q.i] = (p[q.i] * 3.0)",
        "parallel for y.i in 0..4:",
    ]  # fmt: skip
