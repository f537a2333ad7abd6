"""Fault injection with real processes: every way a worker can go wrong is a value, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.errors import MeasureError
from autotune.measure.failure import Failure
from autotune.measure.protocol import Message
from autotune.measure.worker import Worker, WorkerPool, WorkerSpec

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(autouse=True)
def _entries_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def spec(**changes: object) -> WorkerSpec:
    settings: dict[str, object] = {
        "entry": "worker_entries:misbehave",
        "init": {"colour": "blue"},
        "timeout": 20.0,
        "memory_bytes": 1 << 30,
    }
    return WorkerSpec(**(settings | changes))  # type: ignore[arg-type]


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(spec())
    yield worker
    worker.stop()


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def echo(worker: Worker) -> Message:
    reply = worker.call(Message({"do": "echo"}))
    assert isinstance(reply, Message)
    return reply


def test_worker_answers_with_body_and_blobs_and_stays(worker: Worker) -> None:
    blob = os.urandom(3 << 20)  # more than a socket buffer
    reply = worker.call(Message({"do": "echo"}, (blob, b"", b"x")))
    assert isinstance(reply, Message)
    assert reply.blobs == (blob, b"", b"x")
    assert reply.body["init"] == {"colour": "blue"}
    assert reply.body["seen"] == [True, "1"]
    again = echo(worker)
    assert (again.body["pid"], again.body["served"]) == (reply.body["pid"], 2)


@pytest.mark.parametrize(
    ("what", "kind", "words"),
    [
        ("segfault", "crash", ["SIGSEGV", "about to fall"]),
        ("exit", "crash", ["status 3"]),
        ("bomb", "memory", ["more than 192 MiB"]),
        ("huge", "memory", ["out of memory"]),
        ("raise", "runtime", ["ScheduleError: no such axis: k", "worker_entries.py"]),
        ("refuse", "schedule", ["refused by hand"]),
    ],
)
def test_every_fault_is_a_typed_failure_and_the_next_task_works(what: str, kind: str, words: list[str]) -> None:
    worker = Worker(spec(memory_bytes=192 << 20))
    try:
        failure = worker.call(Message({"do": what}))
        assert isinstance(failure, Failure)
        assert failure.kind == kind
        for word in words:
            assert word in failure.message
        assert "\n" not in failure.message
        assert echo(worker).body["init"] == {"colour": "blue"}
    finally:
        worker.stop()


def test_hang_is_cut_off_and_the_process_is_gone(worker: Worker) -> None:
    pid = echo(worker).body["pid"]
    failure = worker.call(Message({"do": "sleep", "seconds": 600}), timeout=0.3)
    assert failure == Failure("timeout", "no answer within 0.3 s")
    assert not is_alive(int(str(pid)))
    assert echo(worker).body["pid"] != pid


def test_printing_disturbs_nothing(worker: Worker) -> None:
    for _ in range(2):
        assert isinstance(worker.call(Message({"do": "noise"})), Message)


def test_garbage_on_the_channel_costs_only_its_worker(worker: Worker) -> None:
    pid = echo(worker).body["pid"]
    fds = [int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(fd).startswith("socket:")]
    failure = worker.call(Message({"do": "babble", "fd": fds[0]}))
    assert isinstance(failure, Failure)
    assert (failure.kind, "no message" in failure.message) == ("crash", True)
    assert echo(worker).body["served"] == 1


def kill_next(worker: Worker, times: int) -> threading.Thread:
    """Kill the worker's process while it is at work, that often."""

    def kill() -> None:
        seen: set[int] = set()
        while len(seen) < times:
            pid = worker.pid
            if pid and pid not in seen and worker.busy:
                seen.add(pid)
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_kill_9_while_busy_costs_no_task(worker: Worker) -> None:
    first = echo(worker).body["pid"]
    killer = kill_next(worker, times=1)
    reply = worker.call(Message({"do": "sleep", "seconds": 0.5}))
    killer.join()
    assert isinstance(reply, Message)
    assert reply.body["pid"] != first


def test_kill_9_twice_over_one_task_is_a_crash(worker: Worker) -> None:
    killer = kill_next(worker, times=2)
    failure = worker.call(Message({"do": "sleep", "seconds": 600}))
    killer.join()
    assert isinstance(failure, Failure)
    assert (failure.kind, "SIGKILL" in failure.message) == ("crash", True)


def test_kill_9_while_idle_costs_no_task(worker: Worker) -> None:
    pid = int(str(echo(worker).body["pid"]))
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(pid))
    assert echo(worker).body["served"] == 1


def test_recycled_after_so_many_tasks() -> None:
    worker = Worker(spec(recycle_after=2))
    try:
        assert [echo(worker).body["served"] for _ in range(5)] == [1, 2, 1, 2, 1]
    finally:
        worker.stop()


def test_stop_kills_grandchildren_too() -> None:
    worker = Worker(spec())
    reply = worker.call(Message({"do": "grandchild"}))
    assert isinstance(reply, Message)
    pids = [int(str(reply.body[name])) for name in ("pid", "grandchild")]
    assert all(is_alive(pid) for pid in pids)
    worker.stop()
    assert eventually(lambda: not any(is_alive(pid) for pid in pids))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("worker_entries:broken", "cannot start with"),
        ("worker_entries:absent", "absent"),
        ("no_such_module:x", "no_such_module"),
    ],
)
def test_a_worker_that_cannot_start_is_an_error_not_a_failed_candidate(entry: str, words: str) -> None:
    worker = Worker(spec(entry=entry))
    with pytest.raises(MeasureError, match=words):
        worker.call(Message({"do": "echo"}))
    assert worker.pid is None


def test_pool_spreads_tasks_and_close_leaves_nothing() -> None:
    with WorkerPool(spec(), count=2) as pool:
        futures = [pool.submit(Message({"do": "sleep", "seconds": 0.2})) for _ in range(4)]
        replies = [future.result(timeout=30) for future in futures]
        pids = {reply.body["pid"] for reply in replies if isinstance(reply, Message)}
        assert len(pids) == 2
        assert set(pool.pids) == pids
        waiting = [pool.submit(Message({"do": "sleep", "seconds": 600})) for _ in range(3)]
        assert eventually(lambda: sum(future.running() for future in waiting) == 2)
    assert not any(is_alive(int(str(pid))) for pid in pids)
    for future in waiting:
        with pytest.raises(MeasureError, match="closed"):
            future.result(timeout=0)
    with pytest.raises(MeasureError, match="closed"):
        pool.submit(Message({"do": "echo"}))


def test_closing_passes_over_cancelled_tasks() -> None:
    with WorkerPool(spec()) as pool:
        running = pool.submit(Message({"do": "sleep", "seconds": 600}))
        assert eventually(running.running)
        cancelled, waiting = (pool.submit(Message({"do": "echo"})) for _ in range(2))
        assert cancelled.cancel()
    with pytest.raises(MeasureError, match="closed"):
        waiting.result(timeout=0)  # the thread that serves went on past the cancelled one


def test_pool_keeps_serving_after_faults() -> None:
    with WorkerPool(spec()) as pool:
        kinds = []
        for what in ("segfault", "echo", "exit", "echo"):
            answer = pool.submit(Message({"do": what})).result(timeout=30)
            kinds.append(answer.kind if isinstance(answer, Failure) else "ok")
        assert kinds == ["crash", "ok", "crash", "ok"]


TUNER = """
import sys, time
sys.path[:0] = [{here!r}, {root!r}]
from autotune.measure.protocol import Message
from autotune.measure.worker import WorkerPool, WorkerSpec
pool = WorkerPool(WorkerSpec("worker_entries:misbehave", {{}}), count=2)
busy = [pool.submit(Message({{"do": "echo"}})) for _ in range(2)]
[task.result() for task in busy]
late = pool.submit(Message({{"do": "sleep", "seconds": 1}}))
pool.submit(Message({{"do": "sleep", "seconds": 600}}))
try:
    print(*pool.pids, flush=True)
    late.result()
    time.sleep(600)
except KeyboardInterrupt:
    print(late.result().body["pid"], flush=True)  # the task in flight survived Ctrl-C
{ending}
"""


def start_tuner(ending: str = "") -> tuple[subprocess.Popen[str], list[int]]:
    code = TUNER.format(here=str(HERE), root=str(ROOT), ending=ending)
    tuner = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    )
    assert tuner.stdout is not None
    return tuner, [int(pid) for pid in tuner.stdout.readline().split()]


def test_kill_9_of_the_parent_leaves_no_child() -> None:
    tuner, pids = start_tuner()
    assert len(pids) == 2
    assert all(is_alive(pid) for pid in pids)
    tuner.kill()
    tuner.communicate(timeout=30)
    assert eventually(lambda: not any(is_alive(pid) for pid in pids))


@pytest.mark.parametrize("ending", ["pool.close()", ""])  # without close: leaving the interpreter is enough
def test_ctrl_c_reaches_the_parent_only(ending: str) -> None:
    tuner, pids = start_tuner(ending)
    os.killpg(tuner.pid, signal.SIGINT)  # what a terminal does
    output, _ = tuner.communicate(timeout=30)
    assert int(output) in pids
    assert tuner.returncode == 0
    assert eventually(lambda: not any(is_alive(pid) for pid in pids))
