"""Recurrences as loops: one loop over the steps around the nests of all stages, which share state through memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import LoweringError, ScheduleError
from autotune.lower import lower, print_program
from autotune.lower.ir import Barrier, For, Once
from autotune.lower.verify import verify
from autotune.schedule import Schedule
from autotune.tensor import (
    ComputeDef,
    Layout,
    compute,
    compute_many,
    placeholder,
    read,
    recurrence,
    reduce_axis,
    select,
    state,
    sum_,
    unary,
)
from tests.conftest import Golden, Right


def cell(steps: int = 4, n: int = 40) -> Schedule:
    """h = c * tanh(gate 1), c += gate 0; gates from x and all of the last h, at first in2; the last c is a result."""
    x, r = placeholder((steps, 2, n), "f32", "in0"), placeholder((2, n, n), "f32", "in1", constant=True)
    start = placeholder((n,), "f32", "in2")
    h, c = state((steps, n), "f32", "h"), state((steps, n), "f32", "c")
    before = compute((steps, n), lambda t, k: select(t >= 1, read(h, (t - 1, k), when=t >= 1), start[k]), "before")
    k = reduce_axis(n, "k")
    fed = compute((steps, 2, n), lambda t, g, j: sum_(before[t, k] * r[g, j, k], k), "fed")

    def update(t, j):  # type: ignore[no-untyped-def]
        kept = read(c, (t - 1, j), when=t >= 1) + x[t, 0, j] + fed[t, 0, j]
        return kept * unary("tanh", x[t, 1, j] + fed[t, 1, j]), kept

    new_h, new_c = recurrence([h, c], compute_many((steps, n), update, ("h", "c")))
    last = compute((n,), lambda j: new_c[steps - 1, j], "last")
    return Schedule(ComputeDef.build([x, r, start], [new_h, last], ["out0", "out1"]))


def nest(s: Schedule) -> str:
    return f"{s}\n\n{print_program(lower(s))}"


def test_plain_stages_meet_after_each_turn(golden: Golden, right: Right) -> None:
    s = cell().parallel("out0", "j")
    golden(nest(s))
    right(s)


def test_fused_cell_with_packed_weights(golden: Golden, right: Right) -> None:
    s = cell().layout("in1", Layout.blocked(3, [(1, 8)], [1, 2, 0]))
    s = s.split("out0", "j", 8).compute_at("fed", "out0", "j.0", "register").compute_at("before", "out0", "t")
    s = s.reorder("fed", "k", "g", "j").unroll("fed", "g").vectorize("fed", "j").vectorize("out0", "j.1")
    s = s.split("before", "k", 8).vectorize("before", "k.1").parallel("out0", "j.0")
    golden(nest(s))
    right(s)


def test_stages_shared_among_threads_one_by_one(right: Right) -> None:
    s = cell(5, 37).reorder("fed", "t", "j", "g", "k").parallel("fed", "j").parallel("before", "k")
    s = s.split("out0", "j", 16).vectorize("out0", "j.1").parallel("out0", "j.0").parallel("out1", "j")
    right(s)


def test_sums_in_blocks_and_copies_take_turns_too(right: Right) -> None:
    s = cell(3, 24).rfactor("fed", "k", 8, "inner").cache_write("fed").cache_read("in1", "fed.rf")
    assert [x.name for x in s.state.stages if x.stage.recurrence] == ["before", "fed.rf", "fed.c", "fed", "out0"]
    right(s.inline("before").parallel("fed.rf", "k.i").parallel("out0", "j"))


def test_one_thread_meets_nobody(right: Right) -> None:
    s = cell()
    assert nest(s).count("barrier") == 0  # nor before the last stage
    right(s)


def test_every_other_turn_runs_backwards(golden: Golden, right: Right) -> None:
    s = cell(5, 40).split("out0", "j", 8).compute_at("fed", "out0", "j.0", "register").compute_at("before", "out0", "t")
    s = s.alternate("out0", "j.0").parallel("out0", "j.0").vectorize("out0", "j.1")
    golden(nest(s))
    right(s)
    alone = cell(3, 20).reorder("fed", "j", "g").alternate("fed", "j").alternate("out0", "j")
    right(alone)
    right(cell(1, 20).alternate("fed", "j"))


def test_one_step_needs_no_loop(right: Right) -> None:
    right(cell(1, 9).parallel("out0", "j"))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s: s.split("out0", "t", 2), "share this loop"),
        (lambda s: s.unroll("out0", "t"), "share this loop"),
        (lambda s: s.vectorize("out0", "t"), "sequential"),
        (lambda s: s.parallel("out0", "t"), "sequential"),
        (lambda s: s.fuse("out0", "t", "j"), "cannot be fused"),
        (lambda s: s.reorder("out0", "j", "t"), "must stay outermost"),
        (lambda s: s.split("out0", "j", 8).parallel("out0", "j.1"), "only the outermost loop"),
        (lambda s: s.compute_at("before", "out1", "j"), "not one of the stages that take turns"),
        (lambda s: s.inline("out0"), "it is a scan"),
        (lambda s: s.cache_read("before", "fed"), "takes turns"),
        (lambda s: s.alternate("out0", "t"), "no loop inside the steps"),
        (lambda s: s.alternate("out1", "j"), "no loop inside the steps"),
        (lambda s: s.alternate("fed", "k"), "keeps its order"),
        (lambda s: s.alternate("out0", "j").split("out0", "j", 8), "already alternates"),
        (lambda s: s.split("out0", "j", 8).alternate("out0", "j.1").vectorize("out0", "j.1"), "alternates"),
    ],
)
def test_refused(step, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ScheduleError, match=message):
        step(cell())


def test_state_that_later_steps_read_stays_in_memory() -> None:
    x = placeholder((4, 8), "f32", "in0")
    h = state((4, 8), "f32", "h")
    half = compute((4, 8), lambda t, i: x[t, i] * 0.5, "half")
    own = compute((4, 8), lambda t, i: half[t, i] + read(h, (t - 1, 7 - i), when=t >= 1), "own")
    after = compute((4, 8), lambda t, i: own[t, i] + read(own, (t - 1, i), when=t >= 1), "after")
    s = Schedule(ComputeDef.build([x], recurrence([h], [after])))
    with pytest.raises(ScheduleError, match="a later step reads it too"):
        s.compute_at("own", "after", "t")


def test_threads_that_do_not_meet_are_found() -> None:
    program = lower(cell().parallel("out0", "j"))
    (loop, *rest) = program.body
    assert isinstance(loop, For)
    alone = replace(program, body=(Once((loop,)), *rest))
    with pytest.raises(LoweringError, match=r"not all threads come to a barrier|inside what runs on one thread"):
        verify(alone, "test")
    shared = replace(program, body=(replace(loop, mark="parallel"), *rest))
    with pytest.raises(LoweringError, match="inside the parallel loop"):
        verify(shared, "test")
    assert isinstance(loop.body[-1], Barrier)


@pytest.mark.parametrize(
    ("read_at", "kept"), [(lambda t: 5, 3), (lambda t: 3, 3), (lambda t: 1, 5), (lambda t: t, 6), (lambda t: 5 - t, 6)]
)
def test_steps_that_nobody_reads_any_more_make_room(right: Right, read_at, kept: int) -> None:  # type: ignore[no-untyped-def]
    """A state of six steps that is read two steps later, and afterwards at some steps."""
    x = placeholder((6, 8), "f32", "in0")
    h = state((6, 8), "f32", "h")
    new = compute((6, 8), lambda t, i: x[t, i] + read(h, (t - 2, 7 - i), when=t >= 2), "new")
    (found,) = recurrence([h], [new])
    out = compute((6, 8), lambda t, i: found[read_at(t), i] * 2.0, "out0")
    s = Schedule(ComputeDef.build([x], [out]))
    (buffer,) = [b for b in lower(s).buffers if b.name == "new"]
    assert buffer.shape == (kept, 8)
    right(s.parallel("new", "i"))
