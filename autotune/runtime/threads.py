"""Thread pools that run kernels, and the plans they run: what a model's inference and a measurement share."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import final

import numpy as np
import numpy.typing as npt

from autotune import machine
from autotune.errors import ThreadPoolError
from autotune.runtime.native import NativeRuntime, native_runtime
from autotune.runtime.placement import Seats, seats_for
from autotune.runtime.process import process_number

# How long a waiting thread polls before it sleeps, in ticks of the time stamp counter (2-4 GHz). Waking costs
# 5-50 µs. Between regions: long enough to catch a caller that comes back at once, short enough that an idle
# session burns no CPU. Inside a region, all threads are at work and the last one comes soon.
IDLE_SPIN = 200_000
BARRIER_SPIN = 2_000_000
# With more threads than cores, polling keeps the thread that we wait for from running.
CROWDED_SPIN = 2_000

_CLOSED = "this thread pool is closed: make a new one"


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel call of a plan.

    Attributes:
        kernel: address of `void kernel(ptr frame, i64 thread_id, i64 num_threads)`.
        frame: what the kernel's frame points to, in its order: buffers, or addresses as integers; the plan
            adds the barrier as the last entry.
    """

    kernel: int
    frame: Sequence[npt.NDArray[np.generic] | int]


class Plan:
    """Steps laid out for the native driver: each step runs on all threads, with a barrier after it.

    `rotations` are lists of equally many steps. A run uses the first; pass number i of a timing uses number
    i mod rotations, so that copies of the weights in different buffers are as cold as in a model.

    `frames` holds all frames one after another; entries may be changed between runs to point elsewhere.
    The plan keeps the arrays in its frames alive, and the objects in `keep` (libraries, arenas).
    """

    def __init__(self, pool: ThreadPool, rotations: Sequence[Sequence[Step]], keep: Sequence[object] = ()) -> None:
        if not rotations or any(len(steps) != len(rotations[0]) for steps in rotations):
            raise ValueError(f"rotations need equally many steps each, got {[len(steps) for steps in rotations]}")
        self.pool = pool
        self.num_steps = len(rotations[0])
        steps = [step for rotation in rotations for step in rotation]
        rows = [[*map(_address, step.frame), pool.barrier] for step in steps]
        offsets = np.cumsum([0, *map(len, rows)])[:-1] * 8
        self.frames = np.array([pointer for row in rows for pointer in row], dtype=np.uint64)
        self._steps = np.empty((len(steps), 2), dtype=np.uint64)
        self._steps[:, 0] = [step.kernel for step in steps]
        self._steps[:, 1] = offsets + self.frames.ctypes.data
        self._plan = np.array([self.num_steps, _address(self._steps), len(rotations), pool.barrier], dtype=np.uint64)
        self._keep = (*steps, *keep)
        self.address = _address(self._plan)


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """Where the time of one pass went.

    Attributes:
        seconds: f64 (steps,), barrier included.
        busy: f64 (steps, threads), seconds from a step's beginning until a thread has done its part; then it waits.
    """

    seconds: npt.NDArray[np.float64]
    busy: npt.NDArray[np.float64]


@final
class ThreadPool:
    """`num_threads` threads that run plans together; the calling thread is the first of them.

    Regions of one pool run one at a time, whichever Python thread asks. The GIL is released meanwhile.
    A pool belongs to the process that made it: after a fork, make another.

    Attributes:
        num_threads: as given.
        address: the native pool, for `autotune_pool_run` and its kin; valid until `close`.
        barrier: what kernels get as their last frame entry.

    Args:
        num_threads: threads in a region, 1 or more; helper threads start at once.
        cores: cores that the threads may have, None for all that this process may use; with fewer cores than
            threads, waiting threads sleep at once.
        native: the runtime whose threads these are, None for this process's own.

    Raises:
        ThreadPoolError: the threads cannot be started.
    """

    def __init__(self, num_threads: int, cores: int | None = None, native: NativeRuntime | None = None) -> None:
        cores = machine.allowed_cores() if cores is None else cores
        if num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, got {num_threads}")
        self.num_threads = num_threads
        self._native = native or native_runtime()
        self._lock = threading.Lock()
        self._process = process_number()
        spins = (IDLE_SPIN, BARRIER_SPIN) if num_threads <= cores else (CROWDED_SPIN, CROWDED_SPIN)
        address = self._native.pool_create(num_threads, *spins)
        if address is None:
            raise ThreadPoolError(
                f"cannot start {num_threads - 1} helper threads: use fewer, or raise the limits on processes and memory"
            )
        self.address: int = address
        self._open = [address]  # empty once it is closed: asked for in every run, where a list is quickest
        self.barrier: int = self._native.pool_barrier(address)
        self._seat(seats_for(num_threads))
        # Also runs at interpreter exit: no helper may still poll when its code is unmapped.
        self._finalizer = weakref.finalize(self, _destroy, self._native, self._open, self._process)

    def run_plan(self, plan: Plan) -> None:
        """One pass over the plan's first rotation: one parallel region."""
        # On the path of every run, so written out: `_checked`.
        if process_number() != self._process or plan.pool is not self:
            self._checked(plan)
        with self._lock:
            self._native.run(self._open_address(), plan.address)

    def runner(self, plan: Plan) -> Callable[[], None]:
        """`run_plan` for somebody who has the pool for himself, in this process: nobody else is waited for."""
        if plan.pool is not self:
            self._checked(plan)
        run, still, pointer = self._native.run, self._open, plan.address

        def go() -> None:
            try:
                address = still[0]
            except IndexError:
                raise ThreadPoolError(_CLOSED) from None
            run(address, pointer)

        return go

    def time_plan(self, plan: Plan, number: int, repeats: int) -> npt.NDArray[np.float64]:
        """Time `repeats` batches of `number` passes each, all in one parallel region.

        Returns:
            f64 (repeats,): seconds per pass of each batch. The first holds the cold start; drop it if you must.
        """
        if number < 1 or repeats < 1:
            raise ValueError(f"number and repeats must be at least 1, got {number} and {repeats}")
        seconds = np.empty(repeats, dtype=np.float64)
        with self._checked(plan):
            self._native.time(self._open_address(), plan.address, number, repeats, _address(seconds))
        return seconds

    def profile_plan(self, plan: Plan) -> npt.NDArray[np.float64]:
        """One pass with a clock reading after each step's barrier.

        Returns:
            f64 (steps,): seconds of each step, barrier included.
        """
        return self.trace_plan(plan).seconds

    def trace_plan(self, plan: Plan) -> PlanTimes:
        """The same, and when each thread has done its part of each step."""
        stamps = np.empty(plan.num_steps + 1, dtype=np.int64)
        ends = np.empty((plan.num_steps, self.num_threads), dtype=np.int64)
        with self._checked(plan):
            traced, address = self._native.run_traced, self._open_address()
            if traced is not None:
                traced(address, plan.address, _address(stamps), _address(ends))
            else:
                self._native.run_profiled(address, plan.address, _address(stamps))
        if traced is None:
            ends[:] = stamps[1:, np.newaxis]
        # The caller may be told that a step is over later than the others, which have begun the next one then.
        busy = np.clip(ends - stamps[:-1, np.newaxis], 0, np.diff(stamps)[:, np.newaxis])
        return PlanTimes(np.diff(stamps) * 1e-9, busy * 1e-9)

    def run_loop(self, driver: Callable[[int, int, int], int], loop: int) -> int:
        """Many passes over plans of this pool: `driver` is `autotune_loop`, `loop` the address of what it needs to
        know."""
        with self._checked(None):
            return driver(self._native.library.address("autotune_run"), self._open_address(), loop)

    def run_function(self, function: int, argument: int = 0) -> None:
        """Call `void function(ptr argument, i64 thread_id, i64 num_threads)` on every thread: one region."""
        with self._checked(None):
            self._native.pool_run(self._open_address(), function, argument)

    def _seat(self, seats: Seats | None) -> None:
        """Tells the system where the helpers should run. The caller's thread belongs to the application."""
        if seats is None:
            return

        def take(_: int, thread: int, threads: int) -> None:
            if thread > 0:
                with contextlib.suppress(OSError):  # a CPU that went offline: any other will do
                    os.sched_setaffinity(0, seats[thread])

        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(take)
        self._native.pool_run(self.address, ctypes.cast(function, ctypes.c_void_p).value or 0, 0)

    def close(self) -> None:
        """Join the helper threads; closing twice is fine."""
        if process_number() == self._process:
            with self._lock:
                self._finalizer()

    def __enter__(self) -> ThreadPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _checked(self, plan: Plan | None) -> threading.Lock:
        # Before taking the lock: a thread of the parent may have held it when this process was forked.
        if process_number() != self._process:
            raise ThreadPoolError("this thread pool was made before a fork: make a new one in the child process")
        if plan is not None and plan.pool is not self:
            raise ThreadPoolError("this plan was made for another thread pool: make it with the pool that runs it")
        return self._lock

    def _open_address(self) -> int:
        if not self._open:
            raise ThreadPoolError(_CLOSED)
        return self.address


def _address(buffer: npt.NDArray[np.generic] | int) -> int:
    return buffer if isinstance(buffer, int) else buffer.ctypes.data


def _destroy(native: NativeRuntime, still: list[int], process: int) -> None:
    # After a fork the helpers exist in the parent only; joining them here would wait for ever.
    if process_number() == process:
        native.pool_destroy(still.pop())
