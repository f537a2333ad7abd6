"""Long-lived worker processes: isolation for everything that may crash, hang or eat the machine.

A worker is a fresh interpreter in its own session (so Ctrl-C does not reach it and its group can be
killed as one), bound to our life by PDEATHSIG, with capped memory. LLVM lives only in workers: llvmlite
holds one global lock per process. A task that crashes, hangs or grows too big costs its worker, not the
tuner: it becomes a `Failure` and a new worker starts.
"""

from __future__ import annotations

import json
import os
import queue
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType

from autotune.errors import MeasureError
from autotune.measure.failure import Failure, FailureKind
from autotune.measure.protocol import Decoder, Json, Message, encode

# -I: no current directory, no PYTHON* variables; the parent's own sys.path is handed over instead.
_BOOT = """\
import json, sys
start = json.loads(sys.argv[1])
sys.path[:] = start.pop("path")
from autotune.measure.child import main
main(**start)
"""
# One thread per worker: BLAS and OpenMP pools would fight with ours and with the measured kernel.
_POOL_SIZES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_POLL_SECONDS = 0.05  # how often resident size and cancellation are looked at
_TAIL_BYTES = 1500  # of a worker's output, quoted in a failure
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_OUT_OF_MEMORY = ("out of memory", "bad_alloc", "MemoryError", "Cannot allocate memory")


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """How to start a worker and what it may cost.

    `entry` is `module:function`, a factory `(init) -> handler`, imported in the worker only.
    """

    entry: str
    init: dict[str, Json]
    timeout: float = 30.0  # seconds per task, wall clock
    memory_bytes: int = 4 << 30
    recycle_after: int = 1000  # tasks; LLVM and the allocator keep what they once took
    start_timeout: float = 60.0


class Worker:
    """One worker process, started when needed and replaced when lost.

    Used from one thread at a time. The thread that calls must live as long as the worker: the kernel
    sends PDEATHSIG when the *thread* that started a process ends.
    """

    def __init__(self, spec: WorkerSpec, cancelled: Callable[[], bool] = lambda: False) -> None:
        """`cancelled` is polled while waiting; once true, `call` raises MeasureError."""
        self._spec = spec
        self._cancelled = cancelled
        self._process: _Process | None = None
        self._served = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process if there is none; does not wait until it is ready."""
        if self._process is None:
            self._process = _Process(self._spec)
            self._served = 0

    def call(self, request: Message, timeout: float | None = None) -> Message | Failure:
        """Have the worker handle `request` within `timeout` seconds (default: the spec's).

        Raises:
            MeasureError: the worker cannot start at all, or the wait was cancelled.
        """
        process = self._ready_process()
        limit = self._spec.timeout if timeout is None else timeout
        process.send(request)
        answer = self._wait(process, limit)
        self._served += 1
        if isinstance(answer, Failure):
            self.stop()
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

    def _ready_process(self) -> _Process:
        """A process that waits for a request; one that died idle or is due for recycling is replaced."""
        if self._process is not None and (self._served >= self._spec.recycle_after or self._process.died_idle()):
            self.stop()
        for _ in range(2):  # a second time, because somebody may have killed the first
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
            if isinstance(answer, Message):
                break
        reason = answer.message if isinstance(answer, Failure) else str(answer.body.get("broken", answer.body))
        raise MeasureError(f"worker {self._spec.entry} does not start: {_one_line(reason)}")

    def _wait(self, process: _Process, limit: float) -> Message | Failure:
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
        """Kill the workers, cancel what is queued, and wait until all are reaped. Idempotent."""
        with self._lock:
            self._closing.set()
            for _ in self._threads:
                self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> WorkerPool:  # noqa: PYI034 (typing.Self came with 3.11)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _serve(self, worker: Worker) -> None:
        try:
            worker.start()  # imports while the first task is still being made
            while (task := self._tasks.get()) is not None:
                if self._closing.is_set():
                    task.future.cancel()
                elif task.future.set_running_or_notify_cancel():
                    _run(worker, task)
        finally:
            worker.stop()


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


class _Process:
    """The operating system's side of a worker: process, socket, output pipe."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.ready = False
        self.closed = False
        self._decoder = Decoder()
        self._messages: list[Message] = []
        self._outgoing = memoryview(b"")
        self._tail = bytearray()
        self._channel, theirs = socket.socketpair()
        with theirs:
            start = {
                "fd": theirs.fileno(),
                "parent_pid": os.getpid(),
                "memory_bytes": spec.memory_bytes,
                "entry": spec.entry,
                "path": [entry or os.getcwd() for entry in sys.path],
            }
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-u", "-c", _BOOT, json.dumps(start)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=os.environ | dict.fromkeys(_POOL_SIZES, "1"),
            )
        assert self._popen.stdout is not None
        self._output = self._popen.stdout
        os.set_blocking(self._output.fileno(), False)
        self._channel.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._channel, selectors.EVENT_READ)
        self._selector.register(self._output, selectors.EVENT_READ)
        self.send(Message(spec.init))

    @property
    def pid(self) -> int:
        return self._popen.pid

    def send(self, message: Message) -> None:
        """Queue `message`; `poll` writes it. Output from here on belongs to its task."""
        self._outgoing = memoryview(bytes(self._outgoing) + encode(message))
        self._tail.clear()
        self._selector.modify(self._channel, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def poll(self, timeout: float) -> Message | None:
        """Move bytes for at most `timeout` seconds; a message when one is complete.

        Raises:
            MeasureError: the worker sent something that is no message.
        """
        if not self._messages:
            for key, events in self._selector.select(timeout):
                if key.fileobj is self._output:
                    self._drain()
                    continue
                if events & selectors.EVENT_WRITE:
                    self._write()
                if events & selectors.EVENT_READ:
                    self._read()
        return self._messages.pop(0) if self._messages else None

    def died_idle(self) -> bool:
        """Whether a process that has answered everything so far is gone."""
        if self.ready and not self.closed:
            self._read()
        return self.ready and (self.closed or bool(self._messages))

    def resident_bytes(self) -> int:
        """Resident set size; 0 when the process is gone."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * _PAGE_BYTES
        except (OSError, IndexError):
            return 0

    def failure(self, kind: FailureKind, what: str) -> Failure:
        """A failure that quotes the end of the worker's output."""
        self._drain()
        tail = _one_line(self._tail.decode(errors="replace"))
        return Failure(kind, f"{what}; its last output: {tail}" if tail else what)

    def post_mortem(self, memory_bytes: int) -> Failure:
        """Why the process closed the pipe."""
        code = self.kill(grace=1.0)
        self._drain()
        if any(sign in self._tail.decode(errors="replace") for sign in _OUT_OF_MEMORY):
            return self.failure("memory", f"worker needed more than {memory_bytes >> 20} MiB")
        if code >= 0:
            return self.failure("crash", f"worker exited with status {code} in the middle of a task")
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        outside = " (killed from outside, perhaps by the system for lack of memory)" if -code == signal.SIGKILL else ""
        return self.failure("crash", f"worker died with {name}{outside}")

    def kill(self, grace: float = 0.0) -> int:
        """Kill the whole session, reap, close; returns the exit code. `grace`: seconds to die by itself."""
        deadline = time.monotonic() + grace
        # WNOWAIT leaves a zombie, whose id, and so the group's, cannot be taken by somebody else.
        while time.monotonic() < deadline and self._popen.returncode is None:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break
            time.sleep(0.005)
        if self._popen.returncode is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._popen.kill()  # between fork and setsid there is no group yet
            self._popen.wait()
            self._drain()
            self._selector.close()
            self._channel.close()
            self._output.close()
        return int(self._popen.returncode)

    def _read(self) -> None:
        try:
            chunk = self._channel.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionError:
            chunk = b""
        if not chunk:
            self.closed = True
        self._messages.extend(self._decoder.feed(chunk))

    def _write(self) -> None:
        try:
            sent = self._channel.send(self._outgoing)
        except BlockingIOError:
            return
        except ConnectionError:
            self.closed = True
            return
        self._outgoing = self._outgoing[sent:]
        if not self._outgoing:
            self._selector.modify(self._channel, selectors.EVENT_READ)

    def _drain(self) -> None:
        """Keep the last bytes of what the worker printed; a full pipe would stop it."""
        if self._output.closed:
            return
        for _ in range(64):  # bounded: a worker that prints without end must not hold us here
            try:
                chunk = os.read(self._output.fileno(), 1 << 16)
            except BlockingIOError:
                return
            if not chunk:
                if self._output in self._selector.get_map():
                    self._selector.unregister(self._output)
                return
            self._tail += chunk
            del self._tail[:-_TAIL_BYTES]


def _one_line(text: str) -> str:
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())
