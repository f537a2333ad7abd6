"""Long-lived worker processes: isolation for everything that may crash, hang or eat the machine.

A worker is a fresh interpreter in its own session (so Ctrl-C does not reach it and its group can be
killed as one), bound to our life by PDEATHSIG, with capped memory. Candidates are compiled and run in workers
only: llvmlite holds one global lock per process, and nobody knows what a candidate does. (The compiler of a
model uses LLVM in its own process: for schedules that were verified, and for defaults.) A task that crashes,
hangs or grows too big costs its worker, not the tuner: it becomes a `Failure` and a new worker starts.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from autotune.errors import MeasureError
from autotune.measure.failure import Failure
from autotune.measure.process import WorkerProcess, one_line
from autotune.measure.protocol import Json, Message

Result = TypeVar("Result")
Owner = TypeVar("Owner", bound="HasWorkers")

_POLL_SECONDS = 0.05  # how often resident size and cancellation are looked at

_STARTS = 10  # tries before a worker counts as one that cannot start


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """How to start a worker and what it may cost.

    `entry` is `module:function`, a factory `(init) -> handler`, imported in the worker only; `imports`: modules (or
    paths of Python files) that register the user's own operators and templates.
    """

    entry: str
    init: dict[str, Json]
    timeout: float = 30.0  # seconds per task, wall clock
    memory_bytes: int = 4 << 30
    recycle_after: int = 1000  # tasks; LLVM and the allocator keep what they once took
    start_timeout: float = 60.0
    imports: tuple[str, ...] = ()


class Worker:
    """One worker process, started when needed and replaced when lost.

    Used from one thread at a time. The thread that calls must live as long as the worker: the kernel
    sends PDEATHSIG when the *thread* that started a process ends.
    """

    def __init__(self, spec: WorkerSpec, cancelled: Callable[[], bool] = lambda: False) -> None:
        """`cancelled` is polled while waiting; once true, `call` raises MeasureError."""
        self._spec = spec
        self._cancelled = cancelled
        self._process: WorkerProcess | None = None
        self._served = 0
        self._busy = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def busy(self) -> bool:
        """Whether a process has started to work on a request."""
        return self._busy

    def start(self) -> None:
        """Start the process if there is none; does not wait until it is ready."""
        if self._process is None:
            self._process = WorkerProcess(
                self._spec.entry, self._spec.init, self._spec.memory_bytes, self._spec.imports
            )
            self._served = 0

    def call(self, request: Message, timeout: float | None = None) -> Message | Failure:
        """Have the worker handle `request` within `timeout` seconds (default: the spec's).

        A worker that somebody else killed says nothing about its task, which gets a second chance.

        Raises:
            MeasureError: the worker cannot start at all, or the wait was cancelled.
        """
        limit = self._spec.timeout if timeout is None else timeout
        answer, process = self._ask(request, limit)
        if process.killed_from_outside:
            answer, process = self._ask(request, limit)
        if isinstance(answer, Failure):
            return answer
        if "failure" in answer.body:
            return Failure.from_json(answer.body["failure"])
        reply = answer.body.get("reply")
        return Message(reply if isinstance(reply, dict) else {}, answer.blobs)

    def stop(self) -> None:
        """Kill the process and all it started, and reap it. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _ask(self, request: Message, limit: float) -> tuple[Message | Failure, WorkerProcess]:
        """The answer, and the process that gave it or was lost over it."""
        process = self._ready_process()
        process.send(request)
        self._busy = True
        try:
            answer = self._wait(process, limit)
        finally:
            self._busy = False
        self._served += 1
        if isinstance(answer, Failure):
            self.stop()
        return answer, process

    def _ready_process(self) -> WorkerProcess:
        """A process that waits for a request; one that died idle or is due for recycling is replaced."""
        if self._process is not None and (self._served >= self._spec.recycle_after or self._process.died_idle()):
            self.stop()
        for _ in range(_STARTS):  # again, because somebody may have killed it, and starting takes a while
            self.start()
            process = self._process
            assert process is not None
            if process.ready:
                return process
            answer = self._wait(process, self._spec.start_timeout)
            if isinstance(answer, Message) and answer.body.get("ready"):
                process.ready = True
                return process
            self.stop()
            if isinstance(answer, Message) or answer.kind != "crash":
                break
        reason = answer.message if isinstance(answer, Failure) else str(answer.body.get("broken", answer.body))
        raise MeasureError(f"worker {self._spec.entry} does not start: {one_line(reason)}")

    def _wait(self, process: WorkerProcess, limit: float) -> Message | Failure:
        """The next message of `process`, or why there will be none (then the process is to be stopped)."""
        deadline = time.monotonic() + limit
        while True:
            try:
                message = process.poll(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
            except MeasureError as error:
                return process.failure("crash", str(error))
            if message is not None:
                return message
            if process.closed:
                return process.post_mortem(self._spec.memory_bytes)
            if process.resident_bytes() > self._spec.memory_bytes:
                return process.failure("memory", f"worker used more than {self._spec.memory_bytes >> 20} MiB")
            if time.monotonic() >= deadline:
                return process.failure("timeout", f"no answer within {limit:g} s")
            if self._cancelled():
                self.stop()
                raise MeasureError("the worker was closed before it answered")


class WorkerPool:
    """`count` workers that share one queue of tasks. Safe to use from several threads."""

    def __init__(self, spec: WorkerSpec, count: int = 1) -> None:
        if count < 1:
            raise MeasureError(f"a worker pool needs at least one worker, not {count}")
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._workers = [Worker(spec, self._closing.is_set) for _ in range(count)]
        self._threads = [threading.Thread(target=self._serve, args=(worker,), daemon=True) for worker in self._workers]
        for thread in self._threads:
            thread.start()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers alive now."""
        return tuple(pid for worker in self._workers if (pid := worker.pid) is not None)

    def submit(self, request: Message, timeout: float | None = None) -> Future[Message | Failure]:
        """Queue `request`; the future holds the reply or a `Failure`, or raises MeasureError.

        Raises:
            MeasureError: the pool is closed.
        """
        future: Future[Message | Failure] = Future()
        with self._lock:
            if self._closing.is_set():
                raise MeasureError("the worker pool is closed")
            self._tasks.put(_Task(request, timeout, future))
        return future

    def close(self) -> None:
        """Kill the workers, fail what is queued, and wait until all are reaped. Idempotent."""
        with self._lock:
            self._closing.set()
            for _ in self._threads:
                self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self, worker: Worker) -> None:
        try:
            worker.start()  # imports while the first task is still being made
            while (task := self._tasks.get()) is not None:
                if not task.future.set_running_or_notify_cancel():
                    continue  # nobody waits for it any more
                if self._closing.is_set():
                    task.future.set_exception(MeasureError("the worker pool was closed before this task's turn"))
                else:
                    _run(worker, task)
        finally:
            worker.stop()


class HasWorkers:
    """What works by a pool of workers: they end with `close`, or with the context."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes at work."""
        return self._pool.pids

    def close(self) -> None:
        """Kill the workers. Idempotent."""
        self._pool.close()

    def __enter__(self: Owner) -> Owner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def mapped(answer: Future[Message | Failure], decode: Callable[[Message], Result]) -> Future[Result | Failure]:
    """A future of what `decode` makes of the reply; failures, errors and (upwards) cancelling pass through."""
    result: Future[Result | Failure] = Future()
    result.add_done_callback(lambda done: answer.cancel() if done.cancelled() else None)

    def finish(done: Future[Message | Failure]) -> None:
        if not result.set_running_or_notify_cancel():
            return
        try:
            reply = done.result()
            result.set_result(reply if isinstance(reply, Failure) else decode(reply))
        except Exception as error:  # noqa: BLE001 (whoever waits for the future gets it)
            result.set_exception(error)

    answer.add_done_callback(finish)
    return result


@dataclass(frozen=True, slots=True)
class _Task:
    request: Message
    timeout: float | None
    future: Future[Message | Failure]


def _run(worker: Worker, task: _Task) -> None:
    try:
        answer = worker.call(task.request, task.timeout)
    except Exception as error:  # noqa: BLE001 (whoever waits for the future gets it; this thread goes on)
        task.future.set_exception(error)
        return
    task.future.set_result(answer)
    worker.start()  # a lost worker's successor imports while the tuner thinks
