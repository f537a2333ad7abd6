"""The runtime as LLVM IR: thread pool, barrier, plan driver and timing loop.

One small object of plain x86-64 code serves every kernel, the measuring loop and the compiled model, so
what is measured is what runs. It needs libc only (pthread, futex by `syscall`, `clock_gettime`).

    ptr  autotune_pool_create(i64 threads, i64 idle_spin, i64 barrier_spin)  null when a thread cannot start
    void autotune_pool_destroy(ptr pool)                         joins the helper threads
    ptr  autotune_pool_barrier(ptr pool)                         what kernels get as their last frame entry
    void autotune_pool_run(ptr pool, ptr function, ptr argument) one region: function(argument, thread, threads)
    void autotune_barrier(ptr barrier, i64 thread, i64 threads)
    i64  autotune_claim(ptr barrier, i64 thread, i64 threads, i64 extent, i64 turn)  iterations of a loop, for a thread
    void autotune_run_plan(ptr plan, i64 thread, i64 threads)    inside a region: each step, and a barrier after it
    void autotune_run(ptr pool, ptr plan)                        one region, one pass over the plan
    void autotune_run_profiled(ptr pool, ptr plan, ptr stamps)   i64 ns: at the start and after each step
    void autotune_run_traced(ptr pool, ptr plan, ptr stamps, ptr ends)  and, step by step, when each thread was done
    void autotune_time(ptr pool, ptr plan, i64 number, i64 repeats, ptr seconds)  f64 per repeat: seconds of a pass

A plan is {i64 steps, ptr first step, i64 rotations, ptr barrier}, a step is {ptr kernel, ptr frame}. A timed
pass number i uses the steps of rotation i mod rotations: equal work on other buffers, so that weights are as
cold as they are in a model. Spin times are in ticks of the time stamp counter.

The caller is thread 0. A waiting thread polls for its spin time, then sleeps in a futex: an idle pool uses no
CPU, and a pool with more threads than cores makes progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.codegen.runtime_claims import CLAIMS_IR
from autotune.codegen.runtime_seats import SEATS_IR

if TYPE_CHECKING:
    from autotune.codegen.kernel import CompileIr

_TYPES = """
; arrived | phase, sleepers, spin: the counter and the word that waiters poll are on cache lines of their own
%Barrier = type { i32, [60 x i8], i32, i32, i64, [48 x i8] }
; pool, thread number, pthread_t, the core that the thread was last seen on, ticks until which it must not move | what
; is taken of the thread's range of a loop, the number of the loop that it is in, whose range it takes from
%Helper = type { ptr, i64, i64, i64, i64, [24 x i8], i64, i32, i64, [40 x i8] }
; threads, idle spin | generation, sleepers, function, argument | barrier | one helper per thread, right behind the
; barrier; of the first only the core is used
%Pool = type { i64, i64, [48 x i8], i32, i32, ptr, ptr, [40 x i8], %Barrier, [0 x %Helper] }
%Step = type { ptr, ptr }
%Plan = type { i64, ptr, i64, ptr }
; plan, number, repeats, seconds
%Timing = type { ptr, i64, i64, ptr }
; plan, stamps, ends
%Profile = type { ptr, ptr, ptr }

declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @sched_getcpu()
declare i32 @clock_gettime(i32, ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare ptr @memset(ptr, i32, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
"""

# A sleeper announces itself before the kernel compares the word, and `advance` changes the word before it
# looks for sleepers; both are sequentially consistent, so one of the two sees the other: no lost wake-up.
_WAITING = """
; returns when the word differs from old; helpers: null outside of regions
define internal void @await(ptr %word, i32 %old, ptr %sleepers, i64 %spin, ptr %helpers, i64 %thread, i64 %threads) {
entry:
  %start = call i64 @llvm.readcyclecounter()
  %seated.first = icmp eq ptr %helpers, null
  br label %poll
poll:
  %seated = phi i1 [ %seated.first, %entry ], [ %seated, %choose ], [ true, %yield ], [ %seated, %sleep ]
  %value = load atomic i32, ptr %word acquire, align 4
  %changed = icmp ne i32 %value, %old
  br i1 %changed, label %done, label %wait
wait:
  call void @llvm.x86.sse2.pause()
  %now = call i64 @llvm.readcyclecounter()
  %waited = sub i64 %now, %start
  %patient = icmp ult i64 %waited, %spin
  br i1 %patient, label %choose, label %sleep
choose:
  ; the system likes to put a woken helper on its waker's core: polling on would keep it from running
  %brief = icmp ult i64 %waited, 20000
  br i1 %brief, label %poll, label %look
look:
  br i1 %seated, label %yield, label %seat
seat:
  call void @take_seat(ptr %helpers, i64 %thread, i64 %threads)
  br label %yield
yield:
  %yielded = call i32 @sched_yield()
  br label %poll
sleep:
  %announced = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %expected = zext i32 %old to i64
  ; futex(word, FUTEX_WAIT_PRIVATE, old)
  %woken = call i64 (i64, ...) @syscall(i64 202, ptr %word, i64 128, i64 %expected, ptr null, ptr null, i64 0)
  %awake = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %poll
done:
  ret void
}

define internal void @advance(ptr %word, ptr %sleepers) {
  %old = atomicrmw add ptr %word, i32 1 seq_cst
  %count = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %count, 0
  br i1 %any, label %wake, label %done
wake:
  ; futex(word, FUTEX_WAKE_PRIVATE, all)
  %woken = call i64 (i64, ...) @syscall(i64 202, ptr %word, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  br label %done
done:
  ret void
}

define void @autotune_barrier(ptr %barrier, i64 %thread, i64 %threads) {
  %alone = icmp ule i64 %threads, 1
  br i1 %alone, label %done, label %arrive
arrive:
  %phase.at = getelementptr %Barrier, ptr %barrier, i64 0, i32 2
  %sleepers = getelementptr %Barrier, ptr %barrier, i64 0, i32 3
  ; read before arriving: the phase cannot change until this thread has arrived
  %phase = load atomic i32, ptr %phase.at acquire, align 4
  %before = atomicrmw add ptr %barrier, i32 1 acq_rel
  %arrived = add i32 %before, 1
  %arrived.wide = zext i32 %arrived to i64
  %last = icmp eq i64 %arrived.wide, %threads
  br i1 %last, label %release, label %wait
release:
  store atomic i32 0, ptr %barrier monotonic, align 4
  call void @advance(ptr %phase.at, ptr %sleepers)
  br label %done
wait:
  %spin.at = getelementptr %Barrier, ptr %barrier, i64 0, i32 4
  %spin = load i64, ptr %spin.at
  %helpers = getelementptr %Barrier, ptr %barrier, i64 1
  call void @await(ptr %phase.at, i32 %phase, ptr %sleepers, i64 %spin, ptr %helpers, i64 %thread, i64 %threads)
  br label %done
done:
  ret void
}
"""

_POOL = """
define ptr @autotune_pool_barrier(ptr %pool) {
  %barrier = getelementptr %Pool, ptr %pool, i64 0, i32 8
  ret ptr %barrier
}

define internal ptr @helper_main(ptr %self) {
entry:
  %pool = load ptr, ptr %self
  %thread.at = getelementptr %Helper, ptr %self, i64 0, i32 1
  %thread = load i64, ptr %thread.at
  %threads = load i64, ptr %pool
  %spin.at = getelementptr %Pool, ptr %pool, i64 0, i32 1
  %spin = load i64, ptr %spin.at
  %generation = getelementptr %Pool, ptr %pool, i64 0, i32 3
  %sleepers = getelementptr %Pool, ptr %pool, i64 0, i32 4
  %function.at = getelementptr %Pool, ptr %pool, i64 0, i32 5
  %argument.at = getelementptr %Pool, ptr %pool, i64 0, i32 6
  %barrier = getelementptr %Pool, ptr %pool, i64 0, i32 8
  br label %loop
loop:
  %seen = phi i32 [ 0, %entry ], [ %next, %work ]
  call void @await(ptr %generation, i32 %seen, ptr %sleepers, i64 %spin, ptr null, i64 0, i64 0)
  call void @note_seat(ptr %self)
  %next = add i32 %seen, 1
  %function = load ptr, ptr %function.at
  %argument = load ptr, ptr %argument.at
  %stop = icmp eq ptr %function, null
  br i1 %stop, label %exit, label %work
work:
  call void %function(ptr %argument, i64 %thread, i64 %threads)
  call void @autotune_barrier(ptr %barrier, i64 %thread, i64 %threads)
  br label %loop
exit:
  ret ptr null
}

define void @autotune_pool_run(ptr %pool, ptr %function, ptr %argument) {
  %threads = load i64, ptr %pool
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %work, label %publish
publish:
  %function.at = getelementptr %Pool, ptr %pool, i64 0, i32 5
  store ptr %function, ptr %function.at
  %argument.at = getelementptr %Pool, ptr %pool, i64 0, i32 6
  store ptr %argument, ptr %argument.at
  %generation = getelementptr %Pool, ptr %pool, i64 0, i32 3
  %sleepers = getelementptr %Pool, ptr %pool, i64 0, i32 4
  call void @advance(ptr %generation, ptr %sleepers)
  %self = getelementptr %Pool, ptr %pool, i64 0, i32 9
  call void @note_seat(ptr %self)
  br label %work
work:
  call void %function(ptr %argument, i64 0, i64 %threads)
  %barrier = getelementptr %Pool, ptr %pool, i64 0, i32 8
  call void @autotune_barrier(ptr %barrier, i64 0, i64 %threads)
  ret void
}

; ends helpers 1 .. end-1 and frees the pool
define internal void @shut_down(ptr %pool, i64 %end) {
entry:
  %function.at = getelementptr %Pool, ptr %pool, i64 0, i32 5
  store ptr null, ptr %function.at
  %generation = getelementptr %Pool, ptr %pool, i64 0, i32 3
  %sleepers = getelementptr %Pool, ptr %pool, i64 0, i32 4
  call void @advance(ptr %generation, ptr %sleepers)
  br label %loop
loop:
  %i = phi i64 [ 1, %entry ], [ %next, %join ]
  %more = icmp ult i64 %i, %end
  br i1 %more, label %join, label %done
join:
  %handle.at = getelementptr %Pool, ptr %pool, i64 0, i32 9, i64 %i, i32 2
  %handle = load i64, ptr %handle.at
  %joined = call i32 @pthread_join(i64 %handle, ptr null)
  %next = add i64 %i, 1
  br label %loop
done:
  call void @free(ptr %pool)
  ret void
}

define void @autotune_pool_destroy(ptr %pool) {
  %threads = load i64, ptr %pool
  call void @shut_down(ptr %pool, i64 %threads)
  ret void
}

define ptr @autotune_pool_create(i64 %threads, i64 %idle_spin, i64 %barrier_spin) {
entry:
  %blocked = alloca [16 x i64]
  %restored = alloca [16 x i64]
  ; 256 bytes before the helpers, two cache lines for each
  %helpers.size = mul i64 %threads, 128
  %size = add i64 %helpers.size, 256
  %pool = call ptr @aligned_alloc(i64 64, i64 %size)
  %no.memory = icmp eq ptr %pool, null
  br i1 %no.memory, label %refuse, label %start
start:
  %zeroed = call ptr @memset(ptr %pool, i32 0, i64 %size)
  store i64 %threads, ptr %pool
  %idle.at = getelementptr %Pool, ptr %pool, i64 0, i32 1
  store i64 %idle_spin, ptr %idle.at
  %barrier.spin.at = getelementptr %Pool, ptr %pool, i64 0, i32 8, i32 4
  store i64 %barrier_spin, ptr %barrier.spin.at
  ; helpers inherit a mask of everything but faults (ILL TRAP ABRT BUS FPE SEGV), so that signals such as
  ; SIGINT reach the threads of the application
  %filled = call ptr @memset(ptr %blocked, i32 255, i64 128)
  store i64 -1273, ptr %blocked
  %masked = call i32 @pthread_sigmask(i32 2, ptr %blocked, ptr %restored)
  br label %loop
loop:
  %i = phi i64 [ 1, %start ], [ %next, %spawned ]
  %more = icmp ult i64 %i, %threads
  br i1 %more, label %spawn, label %finish
spawn:
  %helper = getelementptr %Pool, ptr %pool, i64 0, i32 9, i64 %i
  store ptr %pool, ptr %helper
  %thread.at = getelementptr %Helper, ptr %helper, i64 0, i32 1
  store i64 %i, ptr %thread.at
  %handle.at = getelementptr %Helper, ptr %helper, i64 0, i32 2
  %error = call i32 @pthread_create(ptr %handle.at, ptr null, ptr @helper_main, ptr %helper)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %finish, label %spawned
spawned:
  %next = add i64 %i, 1
  br label %loop
finish:
  %unmasked = call i32 @pthread_sigmask(i32 2, ptr %restored, ptr null)
  br i1 %more, label %undo, label %done
undo:
  call void @shut_down(ptr %pool, i64 %i)
  br label %refuse
done:
  ret ptr %pool
refuse:
  ret ptr null
}
"""

_PLAN = """
define internal i64 @clock_ns() {
  %time = alloca { i64, i64 }
  ; CLOCK_MONOTONIC_RAW: not slewed by NTP
  %status = call i32 @clock_gettime(i32 4, ptr %time)
  %seconds = load i64, ptr %time
  %nanoseconds.at = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %nanoseconds = load i64, ptr %nanoseconds.at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %nanoseconds
  ret i64 %sum
}

; thread 0 writes the time after each step to stamps[1..], and each thread that at which it has done its part of it to
; ends[step][thread], unless stamps or ends is null
define internal void @run_steps(ptr %plan, i64 %rotation, ptr %stamps, ptr %ends, i64 %thread, i64 %threads) {
entry:
  %count = load i64, ptr %plan
  %steps.at = getelementptr %Plan, ptr %plan, i64 0, i32 1
  %steps = load ptr, ptr %steps.at
  %barrier.at = getelementptr %Plan, ptr %plan, i64 0, i32 3
  %barrier = load ptr, ptr %barrier.at
  %first = mul i64 %rotation, %count
  %stamped = icmp ne ptr %stamps, null
  %master = icmp eq i64 %thread, 0
  %stamping = and i1 %stamped, %master
  %ending = icmp ne ptr %ends, null
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %latch ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %call, label %done
call:
  %index = add i64 %first, %i
  %step = getelementptr %Step, ptr %steps, i64 %index
  %kernel = load ptr, ptr %step
  %frame.at = getelementptr %Step, ptr %step, i64 0, i32 1
  %frame = load ptr, ptr %frame.at
  call void %kernel(ptr %frame, i64 %thread, i64 %threads)
  br i1 %ending, label %end, label %meet
end:
  %done.at = call i64 @clock_ns()
  %row = mul i64 %i, %threads
  %cell = add i64 %row, %thread
  %end.at = getelementptr i64, ptr %ends, i64 %cell
  store i64 %done.at, ptr %end.at
  br label %meet
meet:
  call void @autotune_barrier(ptr %barrier, i64 %thread, i64 %threads)
  %next = add i64 %i, 1
  br i1 %stamping, label %stamp, label %latch
stamp:
  %now = call i64 @clock_ns()
  %stamp.at = getelementptr i64, ptr %stamps, i64 %next
  store i64 %now, ptr %stamp.at
  br label %latch
latch:
  br label %loop
done:
  ret void
}

define void @autotune_run_plan(ptr %plan, i64 %thread, i64 %threads) {
  call void @run_steps(ptr %plan, i64 0, ptr null, ptr null, i64 %thread, i64 %threads)
  ret void
}

define void @autotune_run(ptr %pool, ptr %plan) {
  call void @autotune_pool_run(ptr %pool, ptr @autotune_run_plan, ptr %plan)
  ret void
}

define internal void @profile_region(ptr %profile, i64 %thread, i64 %threads) {
  %plan = load ptr, ptr %profile
  %stamps.at = getelementptr %Profile, ptr %profile, i64 0, i32 1
  %stamps = load ptr, ptr %stamps.at
  %ends.at = getelementptr %Profile, ptr %profile, i64 0, i32 2
  %ends = load ptr, ptr %ends.at
  %barrier.at = getelementptr %Plan, ptr %plan, i64 0, i32 3
  %barrier = load ptr, ptr %barrier.at
  call void @autotune_barrier(ptr %barrier, i64 %thread, i64 %threads)
  %master = icmp eq i64 %thread, 0
  br i1 %master, label %stamp, label %run
stamp:
  %now = call i64 @clock_ns()
  store i64 %now, ptr %stamps
  br label %run
run:
  call void @run_steps(ptr %plan, i64 0, ptr %stamps, ptr %ends, i64 %thread, i64 %threads)
  ret void
}

define void @autotune_run_traced(ptr %pool, ptr %plan, ptr %stamps, ptr %ends) {
  %profile = alloca %Profile
  store ptr %plan, ptr %profile
  %stamps.at = getelementptr %Profile, ptr %profile, i64 0, i32 1
  store ptr %stamps, ptr %stamps.at
  %ends.at = getelementptr %Profile, ptr %profile, i64 0, i32 2
  store ptr %ends, ptr %ends.at
  call void @autotune_pool_run(ptr %pool, ptr @profile_region, ptr %profile)
  ret void
}

define void @autotune_run_profiled(ptr %pool, ptr %plan, ptr %stamps) {
  call void @autotune_run_traced(ptr %pool, ptr %plan, ptr %stamps, ptr null)
  ret void
}
"""

_TIMING = """
define internal void @time_region(ptr %timing, i64 %thread, i64 %threads) {
entry:
  %plan = load ptr, ptr %timing
  %number.at = getelementptr %Timing, ptr %timing, i64 0, i32 1
  %number = load i64, ptr %number.at
  %repeats.at = getelementptr %Timing, ptr %timing, i64 0, i32 2
  %repeats = load i64, ptr %repeats.at
  %seconds.at = getelementptr %Timing, ptr %timing, i64 0, i32 3
  %seconds = load ptr, ptr %seconds.at
  %rotations.at = getelementptr %Plan, ptr %plan, i64 0, i32 2
  %rotations = load i64, ptr %rotations.at
  %barrier.at = getelementptr %Plan, ptr %plan, i64 0, i32 3
  %barrier = load ptr, ptr %barrier.at
  %master = icmp eq i64 %thread, 0
  br label %repeat
repeat:
  %r = phi i64 [ 0, %entry ], [ %r.next, %repeat.next ]
  %rotation.first = phi i64 [ 0, %entry ], [ %rotation, %repeat.next ]
  %repeats.left = icmp ult i64 %r, %repeats
  br i1 %repeats.left, label %begin, label %done
begin:
  ; All threads are here before the clock starts, and none begins to work before it has: a thread that loses its core
  ; right behind a barrier would else find the work of the others done, or not yet begun.
  call void @autotune_barrier(ptr %barrier, i64 %thread, i64 %threads)
  br i1 %master, label %begin.clock, label %begin.work
begin.clock:
  %clock.begin = call i64 @clock_ns()
  br label %begin.work
begin.work:
  %clock.first = phi i64 [ %clock.begin, %begin.clock ], [ 0, %begin ]
  call void @autotune_barrier(ptr %barrier, i64 %thread, i64 %threads)
  br label %pass
pass:
  %start = phi i64 [ %clock.first, %begin.work ], [ %start, %run ]
  %n = phi i64 [ 0, %begin.work ], [ %n.next, %run ]
  %rotation = phi i64 [ %rotation.first, %begin.work ], [ %rotation.next, %run ]
  %passes.left = icmp ult i64 %n, %number
  br i1 %passes.left, label %run, label %end
run:
  call void @run_steps(ptr %plan, i64 %rotation, ptr null, ptr null, i64 %thread, i64 %threads)
  %n.next = add i64 %n, 1
  %advanced = add i64 %rotation, 1
  %wraps = icmp uge i64 %advanced, %rotations
  %rotation.next = select i1 %wraps, i64 0, i64 %advanced
  br label %pass
end:
  br i1 %master, label %end.clock, label %repeat.next
end.clock:
  %clock.end = call i64 @clock_ns()
  %elapsed = sub i64 %clock.end, %start
  %elapsed.float = sitofp i64 %elapsed to double
  %number.float = sitofp i64 %number to double
  %nanoseconds = fdiv double %elapsed.float, %number.float
  %result = fmul double %nanoseconds, 1.0e-9
  %result.at = getelementptr double, ptr %seconds, i64 %r
  store double %result, ptr %result.at
  br label %repeat.next
repeat.next:
  %r.next = add i64 %r, 1
  br label %repeat
done:
  ret void
}

define void @autotune_time(ptr %pool, ptr %plan, i64 %number, i64 %repeats, ptr %seconds) {
  %timing = alloca %Timing
  store ptr %plan, ptr %timing
  %number.at = getelementptr %Timing, ptr %timing, i64 0, i32 1
  store i64 %number, ptr %number.at
  %repeats.at = getelementptr %Timing, ptr %timing, i64 0, i32 2
  store i64 %repeats, ptr %repeats.at
  %seconds.at = getelementptr %Timing, ptr %timing, i64 0, i32 3
  store ptr %seconds, ptr %seconds.at
  call void @autotune_pool_run(ptr %pool, ptr @time_region, ptr %timing)
  ret void
}
"""


def runtime_ir() -> str:
    """The IR text of the runtime object."""
    return "".join((_TYPES, SEATS_IR, _WAITING, CLAIMS_IR, _POOL, _PLAN, _TIMING))


def runtime_object(compile_text: CompileIr) -> bytes:
    """The runtime's object code, the same for every x86-64 CPU; `compile_text`: `compile_ir`, or a cache's."""
    return compile_text(runtime_ir(), cpu="x86-64", features="").object_code
