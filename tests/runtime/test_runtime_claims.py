"""How threads share a loop: every iteration once, whoever is late, slow or already in a later loop."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.codegen.jit import compile_ir
from autotune.codegen.link import Library, load_objects
from autotune.codegen.runtime_claims import CLAIMS, CLAIMS_IR
from autotune.codegen.runtime_ir import runtime_ir
from autotune.runtime.native import load_runtime, native_runtime
from autotune.runtime.threads import Plan, Step, ThreadPool
from tests.runtime.clock import NOW

CORES = len(os.sched_getaffinity(0))
PATIENCE = 20_000_000_000
"""Nanoseconds after which a thread waits no longer for others that should have taken its work."""

KERNEL = (
    NOW
    + """
declare i64 @autotune_claim(ptr, i64, i64, i64, i64)
declare i32 @sched_yield()

; until so many iterations have been run by all threads together, or patience ends
define internal void @wait(ptr %total, i64 %many, i64 %patience) {
entry:
  %start = call i64 @now()
  br label %poll
poll:
  %value = load atomic i64, ptr %total acquire, align 8
  %enough = icmp uge i64 %value, %many
  %time = call i64 @now()
  %waited = sub i64 %time, %start
  %impatient = icmp ugt i64 %waited, %patience
  %stop = or i1 %enough, %impatient
  %yielded = call i32 @sched_yield()
  br i1 %stop, label %done, label %poll
done:
  ret void
}

; frame: counts[loops][extent], who[loops][extent], settings, barrier; settings: extent, loops, the thread that waits,
; the turn of a loop in which it does, the iterations that others must have run by then, patience, iterations run
define void @share(ptr %frame, i64 %thread, i64 %threads) {
entry:
  %counts = load ptr, ptr %frame
  %who.at = getelementptr ptr, ptr %frame, i64 1
  %who = load ptr, ptr %who.at
  %settings.at = getelementptr ptr, ptr %frame, i64 2
  %settings = load ptr, ptr %settings.at
  %barrier.at = getelementptr ptr, ptr %frame, i64 3
  %barrier = load ptr, ptr %barrier.at
  %extent = load i64, ptr %settings
  %loops.at = getelementptr i64, ptr %settings, i64 1
  %loops = load i64, ptr %loops.at
  %waiting.at = getelementptr i64, ptr %settings, i64 2
  %waiting = load i64, ptr %waiting.at
  %when.at = getelementptr i64, ptr %settings, i64 3
  %when = load i64, ptr %when.at
  %many.at = getelementptr i64, ptr %settings, i64 4
  %many = load i64, ptr %many.at
  %patience.at = getelementptr i64, ptr %settings, i64 5
  %patience = load i64, ptr %patience.at
  %total = getelementptr i64, ptr %settings, i64 6
  %me = icmp eq i64 %thread, %waiting
  br label %loop
loop:
  %l = phi i64 [ 0, %entry ], [ %l.next, %loop.next ]
  %more = icmp ult i64 %l, %loops
  br i1 %more, label %turns, label %done
turns:
  %turn = phi i64 [ 0, %loop ], [ %turn.next, %ran ]
  %is.when = icmp eq i64 %turn, %when
  %waits = and i1 %me, %is.when
  br i1 %waits, label %late, label %claim
late:
  call void @wait(ptr %total, i64 %many, i64 %patience)
  br label %claim
claim:
  %claimed = call i64 @autotune_claim(ptr %barrier, i64 %thread, i64 %threads, i64 %extent, i64 %turn)
  %turn.next = add i64 %turn, 1
  %any = icmp ne i64 %claimed, 0
  br i1 %any, label %run, label %loop.next
run:
  %first = and i64 %claimed, 4294967295
  %end = lshr i64 %claimed, 32
  br label %iteration
iteration:
  %i = phi i64 [ %first, %run ], [ %i.next, %iteration ]
  %row = mul i64 %l, %extent
  %cell = add i64 %row, %i
  %count.at = getelementptr i64, ptr %counts, i64 %cell
  %before = atomicrmw add ptr %count.at, i64 1 monotonic
  %owner.at = getelementptr i64, ptr %who, i64 %cell
  store i64 %thread, ptr %owner.at
  %ran.before = atomicrmw add ptr %total, i64 1 release
  %i.next = add i64 %i, 1
  %again = icmp ult i64 %i.next, %end
  br i1 %again, label %iteration, label %ran
ran:
  br label %turns
loop.next:
  %l.next = add i64 %l, 1
  br label %loop
done:
  ret void
}
"""
)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Library]:
    with load_objects([compile_ir(KERNEL, cpu="x86-64", features="").object_code], native_runtime().imports) as library:
        yield library


Counts = npt.NDArray[np.int64]


def share(
    kernel: Library, pool: ThreadPool, extent: int, loops: int = 1, *, waiting: int = -1, turn: int = 0, many: int = 0
) -> tuple[Counts, Counts]:
    """How often each iteration of each loop ran, and on which thread last; int64 (loops, extent)."""
    counts, who = np.zeros((loops, max(extent, 1)), np.int64), np.full((loops, max(extent, 1)), -1, np.int64)
    settings = np.array([extent, loops, waiting, turn, many, PATIENCE, 0], np.int64)
    pool.run_plan(Plan(pool, [[Step(kernel.address("share"), [counts, who, settings])]]))
    return counts[:, :extent], who[:, :extent]


@given(st.integers(0, 70), st.integers(1, 5), st.integers(1, 6), st.integers(-1, 5), st.integers(0, 2))
def test_every_iteration_of_every_loop_runs_once(
    kernel: Library, extent: int, loops: int, threads: int, waiting: int, turn: int
) -> None:
    """Between these loops nobody meets, so that threads are in several of them at a time."""
    with ThreadPool(threads, CORES) as pool:
        for _ in range(3):  # numbers of loops go on from pass to pass
            many = extent // 2 if threads > 1 else 0
            counts, _ = share(kernel, pool, extent, loops, waiting=waiting, turn=turn, many=many)
            assert (counts == 1).all()


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_who_has_not_come_leaves_nothing_undone(kernel: Library, threads: int) -> None:
    """A thread that comes when all iterations have run: the others did them all."""
    with ThreadPool(threads, CORES) as pool:
        for waiting in range(threads):
            counts, who = share(kernel, pool, 40, waiting=waiting, many=40)
            assert (counts == 1).all() and (who != waiting).all()


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_others_take_what_a_slow_thread_leaves(kernel: Library, threads: int) -> None:
    """A thread that stays in its first piece until all others have run: it did that piece alone."""
    with ThreadPool(threads, CORES) as pool:
        extent = threads * CLAIMS * 3
        for waiting in range(threads):
            counts, who = share(kernel, pool, extent, waiting=waiting, turn=1, many=extent)
            assert (counts == 1).all() and (who == waiting).sum() <= 3


def test_one_thread_runs_all_of_a_loop(kernel: Library) -> None:
    with ThreadPool(1, CORES) as pool:
        counts, who = share(kernel, pool, 1000, 3)
        assert (counts == 1).all() and (who == 0).all()


def test_a_file_that_was_compiled_before_threads_claimed_loads() -> None:
    """Its kernels call what its own runtime has."""
    assert set(native_runtime().imports) == {"autotune_barrier", "autotune_claim"}
    older = compile_ir(runtime_ir().replace(CLAIMS_IR, ""), cpu="x86-64", features="").object_code
    assert set(load_runtime(older).imports) == {"autotune_barrier"}
