"""Processes that start before who will need them: they serve like others, and none is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from autotune.api.tune import WORKERS
from autotune.errors import MeasureError
from autotune.measure.builder import Builder
from autotune.measure.protocol import Message
from autotune.measure.runner import Runner
from autotune.measure.spawned import early, spawned
from autotune.measure.worker import Worker, WorkerSpec
from autotune.target import Target

HERE = Path(__file__).parent
ENTRY = "worker_entries:misbehave"


@pytest.fixture(autouse=True)
def _entries_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def worker(entry: str = ENTRY) -> Worker:
    return Worker(WorkerSpec(entry, {"colour": "blue"}, 20.0, 1 << 30))


def all_children() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


@pytest.fixture
def children() -> Callable[[], set[int]]:
    """Processes that the test has started; those of other tests may live on."""
    before = all_children()
    return lambda: all_children() - before


def test_the_first_worker_of_an_entry_gets_what_started_early_and_the_next_its_own(
    children: Callable[[], set[int]],
) -> None:
    with early(ENTRY):
        (pid,) = children()
        first, second = worker(), worker()
        try:
            for one in (first, second):
                reply = one.call(Message({"do": "echo"}))
                assert isinstance(reply, Message)
                assert reply.body["init"] == {"colour": "blue"}
            assert (first.pid == pid, second.pid == pid) == (True, False)
        finally:
            first.stop()
            second.stop()


def test_what_nobody_needed_ends_with_the_context_and_what_somebody_uses_does_not(
    children: Callable[[], set[int]],
) -> None:
    with ExitStack() as context:
        context.enter_context(early(ENTRY, "json:loads"))
        used = spawned(ENTRY)
        assert len(children()) == 2
    assert children() == {used.pid}
    assert used.kill() == -signal.SIGKILL
    used.close()


def test_one_that_died_is_replaced_like_any_other(
    children: Callable[[], set[int]],
) -> None:
    with early(ENTRY):
        (pid,) = children()
        os.kill(pid, signal.SIGKILL)
        one = worker()
        try:
            assert isinstance(one.call(Message({"do": "echo"})), Message)
            assert one.pid != pid
        finally:
            one.stop()


def test_a_module_that_cannot_be_loaded_is_told_of_by_who_needs_it() -> None:
    with early("nothing.of.this.name:serve"):
        one = worker("nothing.of.this.name:serve")
        with pytest.raises(MeasureError, match="does not start: .*nothing"):
            one.call(Message({"do": "echo"}))
        one.stop()


def test_no_head_start_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("autotune.measure.spawned.Spawned.__init__", full)
    with early(ENTRY):
        pass


def test_a_tuning_run_starts_those_that_its_runner_and_builder_use(
    children: Callable[[], set[int]],
) -> None:
    with early(*WORKERS):
        started = children()
        with Runner(Target.parse("native")) as runner, Builder() as builder:
            runner.peak(0.0)
            deadline = time.monotonic() + 20
            while not builder.pids and time.monotonic() < deadline:
                time.sleep(0.01)
            assert {*runner.pids, *builder.pids} == started
