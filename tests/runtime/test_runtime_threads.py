"""The native runtime: regions, barriers, plans and the timing loop, with more threads than cores as well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.codegen.jit import compile_ir
from autotune.codegen.link import Library, load_objects
from autotune.errors import ThreadPoolError
from autotune.runtime.native import native_runtime
from autotune.runtime.threads import Plan, Step, ThreadPool
from autotune.tensor.aligned import aligned_empty
from tests.runtime.clock import NOW

CORES = len(os.sched_getaffinity(0))

FAULTS = (signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)

KERNELS = (
    NOW
    + """
declare void @autotune_barrier(ptr, i64, i64)
declare void @llvm.x86.sse2.pause()

; frame: counters (one per thread), barrier.  counters[thread] += 1
define void @count(ptr %frame, i64 %thread, i64 %threads) {
  %counters = load ptr, ptr %frame
  %own = getelementptr i64, ptr %counters, i64 %thread
  %old = load i64, ptr %own
  %new = add i64 %old, 1
  store i64 %new, ptr %own
  ret void
}

; the same for a bare region, whose argument is the counters
define void @count_region(ptr %counters, i64 %thread, i64 %threads) {
  %frame = alloca ptr
  store ptr %counters, ptr %frame
  call void @count(ptr %frame, i64 %thread, i64 %threads)
  ret void
}

; frame: log, barrier.  The last thread alone works, for 50 us, and logs the ns it took at log[++log[0]]
define void @last_works(ptr %frame, i64 %thread, i64 %threads) {
  %log = load ptr, ptr %frame
  %next = add i64 %thread, 1
  %last = icmp eq i64 %next, %threads
  br i1 %last, label %work, label %done
work:
  %begin = call i64 @now()
  br label %spin
spin:
  %end = call i64 @now()
  %took = sub i64 %end, %begin
  %early = icmp slt i64 %took, 50000
  br i1 %early, label %spin, label %write
write:
  %old = load i64, ptr %log
  %slot = add i64 %old, 1
  store i64 %slot, ptr %log
  %at = getelementptr i64, ptr %log, i64 %slot
  store i64 %took, ptr %at
  br label %done
done:
  ret void
}

; frame: in, out, barrier.  out[thread] = in[thread + 1] + 1, so a thread that comes early reads what is not there yet
define void @shift(ptr %frame, i64 %thread, i64 %threads) {
  %in = load ptr, ptr %frame
  %out.at = getelementptr ptr, ptr %frame, i64 1
  %out = load ptr, ptr %out.at
  %successor = add i64 %thread, 1
  %neighbour = urem i64 %successor, %threads
  %from = getelementptr i64, ptr %in, i64 %neighbour
  %value = load i64, ptr %from
  %new = add i64 %value, 1
  %to = getelementptr i64, ptr %out, i64 %thread
  store i64 %new, ptr %to
  ret void
}

; frame: a, b, barrier.  two thousand shifts a -> b -> a, barriers of the kernel's own between
define void @many_shifts(ptr %frame, i64 %thread, i64 %threads) {
entry:
  %a = load ptr, ptr %frame
  %b.at = getelementptr ptr, ptr %frame, i64 1
  %b = load ptr, ptr %b.at
  %barrier.at = getelementptr ptr, ptr %frame, i64 2
  %barrier = load ptr, ptr %barrier.at
  %back = alloca [2 x ptr]
  store ptr %b, ptr %back
  %back.second = getelementptr ptr, ptr %back, i64 1
  store ptr %a, ptr %back.second
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @shift(ptr %frame, i64 %thread, i64 %threads)
  call void @autotune_barrier(ptr %barrier, i64 %thread, i64 %threads)
  call void @shift(ptr %back, i64 %thread, i64 %threads)
  call void @autotune_barrier(ptr %barrier, i64 %thread, i64 %threads)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 1000
  br i1 %more, label %loop, label %done
done:
  ret void
}

; frame: number of pauses, barrier
define void @work(ptr %frame, i64 %thread, i64 %threads) {
entry:
  %amount.at = load ptr, ptr %frame
  %amount = load i64, ptr %amount.at
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @llvm.x86.sse2.pause()
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %amount
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
)


@pytest.fixture(scope="module")
def kernels() -> Iterator[Library]:
    data = compile_ir(KERNELS, cpu="x86-64", features="").object_code
    with load_objects([data], native_runtime().imports) as library:
        yield library


@pytest.fixture(params=[1, 2, 3, 4])
def pool(request: pytest.FixtureRequest) -> Iterator[ThreadPool]:
    with ThreadPool(request.param, CORES) as pool:
        yield pool


def zeros(count: int = 64) -> npt.NDArray[np.int64]:
    return np.zeros(count, dtype=np.int64)


def counting(pool: ThreadPool, kernels: Library, counters: npt.NDArray[np.int64]) -> Plan:
    return Plan(pool, [[Step(kernels.address("count"), [counters])]])


def task_ids() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true; the system may show a thread for a moment after it was joined."""
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_every_thread_runs_every_region_once(pool: ThreadPool, kernels: Library) -> None:
    counters = zeros()
    for _ in range(2000):
        pool.run_function(kernels.address("count_region"), counters.ctypes.data)
    assert counters[: pool.num_threads].tolist() == [2000] * pool.num_threads
    assert not counters[pool.num_threads :].any()


def test_regions_work_after_the_helpers_fell_asleep(kernels: Library) -> None:
    counters = zeros()
    with ThreadPool(3, cores=3) as pool:
        for _ in range(20):
            pool.run_function(kernels.address("count_region"), counters.ctypes.data)
            time.sleep(0.002)
    assert counters[:3].tolist() == [20] * 3


def test_barriers_inside_kernels_keep_order(pool: ThreadPool, kernels: Library) -> None:
    a, b = zeros(), zeros()
    pool.run_plan(Plan(pool, [[Step(kernels.address("many_shifts"), [a, b])]]))
    assert a[: pool.num_threads].tolist() == [2000] * pool.num_threads


def test_steps_of_a_plan_run_in_order(pool: ThreadPool, kernels: Library) -> None:
    a, b = zeros(), zeros()
    there, back = Step(kernels.address("shift"), [a, b]), Step(kernels.address("shift"), [b, a.ctypes.data])
    plan = Plan(pool, [[there, back] * 100], keep=[a])
    for _ in range(5):
        pool.run_plan(plan)
    assert a[: pool.num_threads].tolist() == [1000] * pool.num_threads


def test_timing_runs_each_pass_and_measures_work(pool: ThreadPool, kernels: Library) -> None:
    counters, log = zeros(), np.zeros(3 * 5 + 1, np.int64)
    seconds = pool.time_plan(counting(pool, kernels, counters), number=7, repeats=5)
    assert counters[: pool.num_threads].tolist() == [35] * pool.num_threads
    assert seconds.shape == (5,)
    assert (seconds > 0).all()
    long = pool.time_plan(Plan(pool, [[Step(kernels.address("last_works"), [log])]]), number=3, repeats=5)
    worked = log[1:].reshape(5, 3).mean(axis=1) * 1e-9
    assert log[0] == 15
    assert (long >= worked - 1e-8).all()


def test_a_timed_pass_holds_the_work_of_every_thread(kernels: Library) -> None:
    """Even where the first thread has nothing to do and often loses its core: there are more threads than cores."""
    repeats = 300
    log = np.zeros(repeats + 1, np.int64)
    with ThreadPool(CORES + 1) as pool:
        plan = Plan(pool, [[Step(kernels.address("last_works"), [log])]])
        seconds = pool.time_plan(plan, number=1, repeats=repeats)
    assert log[0] == repeats
    assert (seconds * 1e9 >= log[1:] - 1).all()


def test_timing_rotates_through_the_step_lists(pool: ThreadPool, kernels: Library) -> None:
    buffers = [zeros() for _ in range(3)]
    plan = Plan(pool, [[Step(kernels.address("count"), [counters])] * 2 for counters in buffers])
    pool.time_plan(plan, number=4, repeats=2)
    assert [int(counters[0]) for counters in buffers] == [6, 6, 4]
    pool.run_plan(plan)
    assert [int(counters[0]) for counters in buffers] == [8, 6, 4]


def test_profile_times_each_step(pool: ThreadPool, kernels: Library) -> None:
    """The time of a step holds the work of that step, and all steps together no more than the call took.

    A caller who loses its core at a barrier reads the clock late, when others have begun the next step: with several
    threads it is the time from the start on that holds the work.
    """
    repeats, counters = 5, zeros()
    logs = np.zeros((2, repeats + 1), np.int64)
    short = Step(kernels.address("count"), [counters])
    long = [Step(kernels.address("last_works"), [log]) for log in logs]
    plan = Plan(pool, [[short, long[0], short, long[1]]])
    begin = time.perf_counter()
    profiles = np.array([pool.profile_plan(plan) for _ in range(repeats)])
    took = time.perf_counter() - begin
    worked = logs[:, 1:].T * 1e-9
    assert profiles.shape == (repeats, 4)
    assert (profiles > 0).all()
    assert (profiles.cumsum(axis=1)[:, 1::2] >= worked.cumsum(axis=1) - 1e-8).all()
    if pool.num_threads == 1:
        assert (profiles[:, 1::2] >= worked - 1e-8).all()
    assert profiles.sum() <= took


def test_a_trace_tells_how_long_each_thread_is_busy(kernels: Library) -> None:
    amounts = [np.array([amount]) for amount in (1, 500_000)]
    with ThreadPool(2) as pool:
        plan = Plan(pool, [[Step(kernels.address("work"), [amount]) for amount in amounts]])
        traces = [pool.trace_plan(plan) for _ in range(5)]
    assert all(times.seconds.shape == (2,) and times.busy.shape == (2, 2) for times in traces)
    assert all((times.busy >= 0).all() and (times.busy <= times.seconds[:, np.newaxis]).all() for times in traces)
    # A caller who loses its core reads the clock so late that the other's part seems to lie before the step.
    assert any((times.busy[1] > 0).all() for times in traces), "all threads do the work of this kernel"


def test_a_runtime_of_an_older_file_tells_no_thread_from_another(kernels: Library) -> None:
    older = replace(native_runtime(), run_traced=None)
    with ThreadPool(2, native=older) as pool:
        plan = Plan(pool, [[Step(kernels.address("work"), [np.array([1000])])]])
        times = pool.trace_plan(plan)
    assert times.busy.tolist() == [[times.seconds[0]] * 2]


def test_an_empty_plan_is_a_region_without_work(pool: ThreadPool) -> None:
    plan = Plan(pool, [[]])
    pool.run_plan(plan)
    assert pool.profile_plan(plan).shape == (0,)


def test_python_threads_take_turns(kernels: Library) -> None:
    shared, own = zeros(), [zeros() for _ in range(4)]
    with ThreadPool(2, CORES) as pool:

        def serve(counters: npt.NDArray[np.int64]) -> None:
            with ThreadPool(2, CORES) as mine:
                for _ in range(200):
                    pool.run_plan(counting(pool, kernels, shared))
                    mine.run_plan(counting(mine, kernels, counters))

        threads = [threading.Thread(target=serve, args=[counters]) for counters in own]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert shared[:2].tolist() == [800, 800]
    assert [counters[:2].tolist() for counters in own] == [[200, 200]] * 4


def test_idle_helpers_sleep_and_close_ends_them() -> None:
    before = task_ids()
    pool = ThreadPool(4, cores=4)
    helpers = task_ids() - before
    assert len(helpers) == 3

    def states() -> set[str]:
        return {Path(f"/proc/self/task/{helper}/stat").read_text().rsplit(")", 1)[1].split()[0] for helper in helpers}

    assert eventually(lambda: states() == {"S"})
    used = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - used < 0.1
    pool.close()
    pool.close()
    assert eventually(lambda: not task_ids() & helpers)


@pytest.mark.skipif(CORES < 2, reason="one core only")
def test_helpers_on_the_callers_core_may_move_and_are_not_pinned(kernels: Library) -> None:
    before, allowed = task_ids(), os.sched_getaffinity(0)
    with ThreadPool(2) as pool:
        (helper,) = map(int, task_ids() - before)
        counters = np.zeros(2, np.int64)
        plan = Plan(pool, [[Step(kernels.address("count"), [counters])] * 100])
        try:
            for _ in range(5):
                for thread in (0, helper):  # together on one core, and free to leave it
                    os.sched_setaffinity(thread, {min(allowed)})
                    os.sched_setaffinity(thread, allowed)
                for _ in range(10):
                    pool.run_plan(plan)
                assert os.sched_getaffinity(helper) == allowed
        finally:
            os.sched_setaffinity(0, allowed)
        assert list(counters) == [5000, 5000]


def test_helpers_leave_signals_to_the_application() -> None:
    before = task_ids()
    with ThreadPool(2, CORES):
        (helper,) = task_ids() - before

        def blocked(number: int) -> bool:
            status = Path(f"/proc/self/task/{helper}/status").read_text()
            return bool(int(status.split("SigBlk:")[1].split()[0], 16) >> (number - 1) & 1)

        # libc blocks everything until a new thread has begun
        assert eventually(lambda: not any(map(blocked, FAULTS)))
        assert blocked(signal.SIGINT)
        assert blocked(signal.SIGTERM)


def test_a_runner_runs_its_plan_as_long_as_the_pool_is_open(kernels: Library) -> None:
    counters = zeros()
    with ThreadPool(1, CORES) as first, ThreadPool(1, CORES) as second:
        plan = counting(first, kernels, counters)
        go = first.runner(plan)
        go()
        go()
        assert counters[0] == 2
        with pytest.raises(ThreadPoolError, match="another thread pool"):
            second.runner(plan)
    with pytest.raises(ThreadPoolError, match="closed"):
        go()


def test_misuse_is_refused(kernels: Library) -> None:
    counters = zeros()
    with ThreadPool(1, CORES) as first, ThreadPool(1, CORES) as second:
        plan = counting(first, kernels, counters)
        with pytest.raises(ThreadPoolError, match="another thread pool"):
            second.run_plan(plan)
        with pytest.raises(ValueError, match="at least 1"):
            first.time_plan(plan, number=0, repeats=1)
        with pytest.raises(ValueError, match="equally many"):
            Plan(first, [[], [Step(kernels.address("count"), [counters])]])
    with pytest.raises(ThreadPoolError, match="closed"):
        first.run_plan(plan)
    with pytest.raises(ValueError, match="at least 1"):
        ThreadPool(0, CORES)


def test_a_forked_child_is_refused_and_the_parent_goes_on(kernels: Library) -> None:
    counters = zeros()
    with ThreadPool(2, CORES) as pool:
        plan = counting(pool, kernels, counters)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                pool.run_plan(plan)
            except ThreadPoolError as error:
                code = 0 if "fork" in str(error) else 2
            finally:
                pool.close()
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        pool.run_plan(plan)
    assert counters[:2].tolist() == [1, 1]


def run_script(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_open_pool_does_not_disturb_the_end_of_the_process() -> None:
    run_script("from autotune.runtime.threads import ThreadPool; pool = ThreadPool(4, cores=4); pool.run_plan")


def test_threads_that_cannot_start_are_an_error() -> None:
    printed = run_script("""
import os, resource, time
from autotune.errors import ThreadPoolError
from autotune.runtime.threads import ThreadPool
ThreadPool(1, cores=1).close()
threads = len(os.listdir("/proc/self/task"))
size = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (size + (200 << 20), -1))
try:
    ThreadPool(500, cores=500)
except ThreadPoolError as error:
    print(error)
while len(os.listdir("/proc/self/task")) > threads:
    time.sleep(0.01)
ThreadPool(2, cores=2).close()
""")
    assert "cannot start 499 helper threads" in printed


@given(nbytes=st.integers(0, 5000), align=st.sampled_from([1, 8, 64, 4096]))
def test_aligned_buffers(nbytes: int, align: int) -> None:
    buffer = aligned_empty(nbytes, align)
    assert buffer.shape == (nbytes,)
    assert buffer.dtype == np.uint8
    assert nbytes == 0 or buffer.ctypes.data % align == 0  # NumPy gives empty arrays no address
