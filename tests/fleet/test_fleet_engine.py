"""What becomes of requests: workers that leave, break, lie and answer nonsense, and schedulers that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

pytest.importorskip("distributed")

from autotune.errors import ClusterError
from autotune.fleet import engine
from autotune.fleet.engine import Fleet, Patience
from autotune.fleet.identity import Identity, build_resource
from autotune.fleet.workers import FleetBuilder, FleetRunner
from autotune.measure.failure import Failure
from autotune.measure.protocol import Message, encode
from autotune.measure.runner import Runner
from autotune.measure.types import MeasureResult
from autotune.target import Target
from tests.fleet.cluster import Cluster, Scripted, cluster
from tests.measure.toy_kernels import build, candidate

TARGET = Target.parse("native -num-cores=1")
ME = Identity.here()
BUILDS = Identity.here(builders=1)
RUNS = Identity.here(targets=[TARGET])
RESULT = MeasureResult(1e-6, 0.1, 3, 10, 90.0, 0.0, 0.0, 1e-6)
Answer = Callable[[bytes, str], bytes]


def says(by: str, **body: object) -> bytes:
    return encode(Message({"by": by, **body}))  # type: ignore[dict-item]


def echo(frame: bytes, by: str) -> bytes:
    return says(by, reply={"from": by})


def sender(message: Message) -> str:
    return str(message.body["from"])


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(engine, "_LOOK_SECONDS", 0.1)
    with cluster() as made:
        yield made


def fleet_of(made: Cluster, **patience: float) -> Fleet:
    return Fleet(made.address, ME, Patience(**{"alone": 20.0, **patience}))


def ask(fleet: Fleet) -> str | Failure:
    return fleet.ask(build_resource(ME.code), Message({"do": "build"}), sender).result(60)


@pytest.mark.parametrize(
    ("nonsense", "reason"),
    [
        (lambda by: b"garbage", ""),
        (lambda by: says(by, reply=[1]), "an answer that is none"),
        (lambda by: says(by), "reply"),
        (lambda by: says(by, failure={"kind": "bored", "message": ""}), "unknown failure kind 'bored'"),
        (lambda by: says(by, broken="no room on the disk"), "no room on the disk"),
        (lambda by: says(by, reply={}), "from"),
    ],
)
def test_what_answers_nonsense_is_set_aside_and_the_request_goes_out_again(
    made: Cluster, nonsense: Callable[[str], bytes], reason: str
) -> None:
    answers = iter([lambda frame, by: nonsense(by)])
    one = made.join(Scripted(BUILDS, lambda frame, by: next(answers, echo)(frame, by)), "one")
    with fleet_of(made) as fleet:
        assert ask(fleet) == one, "there is nobody else"
        assert reason in fleet.health.aside(one)
        if reason:
            other = made.join(Scripted(BUILDS, echo), "other")
            while len(fleet.members) < 2:
                time.sleep(0.01)
            assert {ask(fleet) for _ in range(4)} == {other}


def test_what_every_worker_breaks_over_is_a_failure_of_the_candidate(made: Cluster) -> None:
    made.join(Scripted(BUILDS, lambda frame, by: says(by, broken="KeyError: 'x'")), "bad")
    with fleet_of(made) as fleet:
        found = ask(fleet)
        assert isinstance(found, Failure)
        assert (found.kind, found.message[:40]) == ("runtime", "4 workers broke over it: ClusterError: K")


def test_who_leaves_while_it_works_is_replaced_and_who_joins_gets_work(made: Cluster) -> None:
    begun, held = threading.Event(), threading.Event()

    def hold(frame: bytes, by: str) -> bytes:
        begun.set()
        held.wait(30)
        return echo(frame, by)

    first = made.join(Scripted(BUILDS, hold), "first")
    with fleet_of(made) as fleet:
        future = fleet.ask(build_resource(ME.code), Message({"do": "build"}), sender)
        assert begun.wait(30)
        threading.Timer(0.2, held.set).start()
        made.leave("first")
        second = made.join(Scripted(BUILDS, echo), "second")
        assert future.result(60) in {first, second}  # it may have ended before it left
        assert ask(fleet) == second


def test_a_scheduler_that_is_restarted_loses_no_request(made: Cluster) -> None:
    held = threading.Event()
    begun = threading.Event()

    def slow(frame: bytes, by: str) -> bytes:
        begun.set()
        held.wait(30)
        return echo(frame, by)

    made.join(Scripted(BUILDS, slow), "one")
    with fleet_of(made, alone=40.0) as fleet:
        futures = [fleet.ask(build_resource(ME.code), Message({"do": "build"}), sender) for _ in range(3)]
        assert begun.wait(30)
        made.restart()
        held.set()
        assert all(str(future.result(60)).startswith("tcp://") for future in futures)


def test_a_scheduler_that_stays_away_ends_the_run_in_one_line(made: Cluster) -> None:
    made.join(Scripted(BUILDS, lambda frame, by: time.sleep(1) or echo(frame, by)), "one")  # type: ignore[func-returns-value]
    with fleet_of(made, alone=0.5) as fleet:
        future = fleet.ask(build_resource(ME.code), Message({"do": "build"}), sender)
        made.close_scheduler()
        with pytest.raises(ClusterError, match=r"has not answered for|offers autotune-build"):
            future.result(60)


def test_with_nobody_to_ask_the_run_ends_in_one_line(made: Cluster) -> None:
    with fleet_of(made, alone=0.3) as fleet, pytest.raises(ClusterError, match="start one by `autotune worker"):
        ask(fleet)
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9 \(.*\): start one by"):
        Fleet("tcp://127.0.0.1:9", ME)


def test_other_code_gets_no_work_and_is_named(made: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    older = replace(BUILDS, code="0" * 64, versions={**BUILDS.versions, "autotune": "0.0.1"})
    made.join(Scripted(older, echo), "older")
    good = made.join(Scripted(BUILDS, echo), "good")
    with fleet_of(made) as fleet:
        assert {ask(fleet) for _ in range(4)} == {good}
        (problem,) = (member.problem for member in fleet.members if member.name == "older")
    assert problem.startswith("autotune 0.0.1 where this has")
    assert f"is not used: {problem}" in caplog.text


def test_a_liar_is_found_out_and_gets_no_work(made: Cluster) -> None:
    """It offers what it does not describe: a target that is not its own."""

    class Liar(Identity):
        @property
        def resources(self) -> dict[str, float]:
            return {**super().resources, build_resource(self.code): 4.0}

    fields = {name: getattr(RUNS, name) for name in ("versions", "code", "host", "cpu", "cores", "builders", "targets")}
    made.join(Scripted(Liar(**fields), echo), "liar")
    good = made.join(Scripted(BUILDS, echo), "good")
    with fleet_of(made) as fleet:
        assert {ask(fleet) for _ in range(4)} == {good}
        assert "other things than it describes" in "".join(member.problem for member in fleet.members)


def test_a_slow_runner_is_set_aside_and_its_trials_are_marked(made: Cluster) -> None:
    def runs(probe: float) -> Answer:
        return lambda frame, by: says(by, reply={"result": replace(RESULT, probe_gflops=probe).to_json(), "from": by})

    slow = made.join(Scripted(RUNS, runs(50.0)), "slow")
    made.join(Scripted(RUNS, runs(90.0)), "fast")
    with fleet_of(made) as fleet:
        runner = FleetRunner(fleet, TARGET)
        assert runner.slots == 4
        made_of = build("good", TARGET)
        for _ in range(8):
            futures = [runner.submit(candidate(TARGET), made_of) for _ in range(4)]
            results = [future.result(60) for future in futures]
        assert "reaches 50 GFLOP/s on one core where another reaches 90" in fleet.health.aside(slow)
        assert not any(isinstance(result, MeasureResult) and result.disturbed for result in results)
        assert runner.slots == 2


def test_what_nobody_waits_for_any_more_is_dropped(made: Cluster) -> None:
    held = threading.Event()
    count: list[str] = []

    def hold(frame: bytes, by: str) -> bytes:
        count.append(by)
        held.wait(30)
        return echo(frame, by)

    made.join(Scripted(BUILDS, hold), "one")
    with fleet_of(made) as fleet:
        futures = [fleet.ask(build_resource(ME.code), Message({"do": "build"}), sender) for _ in range(4)]
        while not count:
            time.sleep(0.01)
        assert all(future.cancel() for future in futures[1:])
        time.sleep(0.3)
        held.set()
        assert str(futures[0].result(60)).startswith("tcp://")
        time.sleep(0.3)
        assert len(count) == 1


def start_worker(address: str, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "autotune", "worker", "--cluster", address, "--run", "--name", name]
    process = subprocess.Popen(
        [*command, "--target", "native -num-cores=1"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    assert "joined" in process.stderr.readline()
    return process


def test_a_worker_process_that_is_killed_loses_nothing_and_one_that_is_told_to_leaves(made: Cluster) -> None:
    workers = [start_worker(made.address, name) for name in ("first", "second")]
    try:
        with fleet_of(made) as fleet:
            runner = FleetRunner(fleet, TARGET)
            good = build("good", TARGET)
            futures = [runner.submit(candidate(TARGET), good) for _ in range(6)]
            assert isinstance(futures[0].result(120), MeasureResult)
            os.killpg(workers[0].pid, signal.SIGKILL)
            assert all(isinstance(future.result(120), MeasureResult) for future in futures)
            assert [member.name for member in fleet.refresh()] == ["second"]
        workers[1].send_signal(signal.SIGTERM)
        assert workers[1].wait(60) == 0
    finally:
        for process in workers:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()


def test_the_slots_are_those_of_the_workers(made: Cluster) -> None:
    made.join(Scripted(Identity.here(builders=3), echo), "three")
    made.join(Scripted(BUILDS, echo), "one")
    with fleet_of(made) as fleet:
        assert FleetBuilder(fleet).slots == 4
        assert isinstance(json.loads(BUILDS.to_json()), dict)
        assert Runner.slots == 1
