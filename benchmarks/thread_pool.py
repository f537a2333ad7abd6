"""What a parallel region and a barrier cost: `python -m benchmarks.thread_pool --openmp libgomp.so.1`.

Empty regions, timed in compiled code: back to back, and after the pool was idle for 2 ms. OpenMP libraries are
called through `GOMP_parallel`, which GCC's, LLVM's and Intel's all export; set OMP_WAIT_POLICY for their spinning.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from autotune import machine
from autotune.codegen.jit import compile_ir
from autotune.codegen.link import load_objects
from autotune.runtime.native import native_runtime
from autotune.runtime.threads import Plan, Step, ThreadPool

# times `samples` batches of `inner` empty regions, asleep for `pause` µs before each batch
LOOP = """
declare i32 @usleep(i32)
declare i32 @clock_gettime(i32, ptr)
declare void @autotune_barrier(ptr, i64, i64)
declare void @autotune_pool_run(ptr, ptr, ptr)
declare void @GOMP_parallel(ptr, ptr, i32, i32)
define void @empty(ptr %a, i64 %thread, i64 %threads) { ret void }
define void @own_region(ptr %pool, i32 %threads) {
  call void @autotune_pool_run(ptr %pool, ptr @empty, ptr null)
  ret void
}
define void @openmp_region(ptr %pool, i32 %threads) {
  call void @GOMP_parallel(ptr @empty, ptr null, i32 %threads, i32 0)
  ret void
}
define i64 @now() {
  %time = alloca { i64, i64 }
  %status = call i32 @clock_gettime(i32 4, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %rest = load i64, ptr %rest.at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}
define void @sample(ptr %region, ptr %pool, i32 %threads, i64 %samples, i64 %inner, i32 %pause, ptr %out) {
entry:
  br label %outer
outer:
  %s = phi i64 [ 0, %entry ], [ %s.next, %stop ]
  %idle = icmp ne i32 %pause, 0
  br i1 %idle, label %rest, label %start
rest:
  %slept = call i32 @usleep(i32 %pause)
  br label %start
start:
  %begin = call i64 @now()
  br label %loop
loop:
  %i = phi i64 [ 0, %start ], [ %i.next, %loop ]
  call void %region(ptr %pool, i32 %threads)
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %inner
  br i1 %more, label %loop, label %stop
stop:
  %end = call i64 @now()
  %elapsed = sub i64 %end, %begin
  %at = getelementptr i64, ptr %out, i64 %s
  store i64 %elapsed, ptr %at
  %s.next = add i64 %s, 1
  %again = icmp ult i64 %s.next, %samples
  br i1 %again, label %outer, label %done
done:
  ret void
}
define void @barriers(ptr %frame, i64 %thread, i64 %threads) {
entry:
  %barrier = load ptr, ptr %frame
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @autotune_barrier(ptr %barrier, i64 %thread, i64 %threads)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 1000
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def summary(microseconds: NDArray[np.float64]) -> dict[str, float]:
    """Minimum, median and 99th percentile in µs."""
    low, middle, high = np.percentile(microseconds, [0, 50, 99])
    return {"min": round(low, 3), "median": round(middle, 3), "p99": round(high, 3)}


def measure(num_threads: int, openmp: list[str]) -> Iterator[dict[str, object]]:
    """One row per pool and situation."""
    runtime = native_runtime()
    imports = dict(runtime.imports)
    imports["autotune_pool_run"] = runtime.library.address("autotune_pool_run")
    object_code = compile_ir(LOOP, cpu="x86-64", features="").object_code
    for path in [None, *openmp]:
        if path is not None:
            found = ctypes.cast(ctypes.CDLL(path).GOMP_parallel, ctypes.c_void_p).value
            imports["GOMP_parallel"] = found or 0
        else:
            imports["GOMP_parallel"] = imports["autotune_pool_run"]  # never called
        with ThreadPool(num_threads) as pool, load_objects([object_code], imports) as library:
            sample: Callable[..., None] = ctypes.CFUNCTYPE(
                None, *[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64],
                *[ctypes.c_int32, ctypes.c_void_p],
            )(library.address("sample"))  # fmt: skip
            region = library.address("own_region" if path is None else "openmp_region")
            for name, samples, inner, pause in (("back to back", 500, 100, 0), ("after 2 ms idle", 300, 1, 2000)):
                out = np.empty(samples, dtype=np.int64)
                for _ in range(2):  # the first is warm-up
                    sample(region, pool.address, num_threads, samples, inner, pause, out.ctypes.data)
                yield {"pool": path or "own", "region": name, "us": summary(out * 1e-3 / inner)}
            if path is None:
                plan = Plan(pool, [[Step(library.address("barriers"), [])]])
                yield {"pool": "own", "barrier": "inside a region", "us": summary(pool.time_plan(plan, 1, 200) * 1e3)}


def main() -> None:
    """Print one JSON line per figure."""
    parser = argparse.ArgumentParser(description="Cost of parallel regions and barriers, in µs.")
    parser.add_argument("--threads", type=int, default=machine.allowed_cores())
    parser.add_argument("--openmp", action="append", default=[], help="an OpenMP runtime library to compare with")
    arguments = parser.parse_args()
    print(json.dumps({"cpu": machine.cpu_name(), "cores": machine.allowed_cores(), "threads": arguments.threads}))
    for row in measure(arguments.threads, arguments.openmp):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
