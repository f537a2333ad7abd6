"""Contract of the runners: what is right is timed, what is wrong is refused, and nothing takes the tuner down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autotune.codegen.kernel import KernelObject
from autotune.cores import core_of
from autotune.errors import MeasureError, TargetError
from autotune.measure import local_runner
from autotune.measure.failure import Failure
from autotune.measure.local_runner import LocalRunner, RunOptions, cold_operands
from autotune.measure.peaks import Peak
from autotune.measure.protocol import Json, Message
from autotune.measure.rounds import Taken
from autotune.measure.runner import AskedRunner, Runner
from autotune.measure.timing import Timing, TimingPolicy
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.target import Target
from autotune.testing import check_runner
from tests.measure.toy_kernels import ROWS, build, candidate

QUICK = TimingPolicy(rounds=3, most_rounds=6, round_seconds=1e-4, batch_seconds=1e-4)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.parse("native -num-cores=2")


@pytest.fixture(scope="module", params=["local", "worker", "cluster"])
def runner(request: pytest.FixtureRequest, target: Target) -> Iterator[LocalRunner | AskedRunner]:
    with opened(request.param, target) as runner:
        yield runner


@pytest.fixture(scope="module", params=["worker", "cluster"])
def worker(request: pytest.FixtureRequest, target: Target) -> Iterator[AskedRunner]:
    with opened(request.param, target) as runner:
        assert not isinstance(runner, LocalRunner)
        yield runner


@contextmanager
def opened(kind: str, target: Target) -> Iterator[LocalRunner | AskedRunner]:
    """A runner in this process, in a worker process, or in that of a cluster's worker."""
    if kind == "local":
        with LocalRunner(target, QUICK) as local:
            yield local
    elif kind == "worker":
        with Runner(target, QUICK, timeout=60) as isolated:
            yield isolated
    else:
        pytest.importorskip("distributed")
        from tests.fleet.cluster import one_worker

        with one_worker(targets=[target], policy=QUICK, timeout=60) as fleet:
            from autotune.fleet.workers import FleetRunner

            yield FleetRunner(fleet, target)


def test_it_keeps_the_contract(worker: AskedRunner, target: Target) -> None:
    check_runner(worker, target=target)


def test_a_right_kernel_is_timed(runner: LocalRunner | AskedRunner, target: Target) -> None:
    result = runner.run(candidate(target), build("good", target))
    assert isinstance(result, MeasureResult)
    assert result.seconds > 0
    assert 1 <= result.batches <= 2 * QUICK.most_rounds
    assert result.max_abs_err == 0.0
    assert result.number > 1 or result.disturbed
    assert result.spread >= 0
    assert result.probe_gflops > 0
    assert 0 < result.tolerance < 1e-4
    assert result.wall_seconds > 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong", "is 0.5, expected 0.1257"),
        ("forgets a row", "[31, 0] is nan, expected"),
        ("reads scratch", "nan"),
        ("dirty scratch", "2 threads, dirty scratch"),
        ("dirty halo", "halo or block padding of output out0"),
        ("stray", "beside output out0"),
        ("thread one only", "2 threads"),
    ],
)
def test_a_wrong_kernel_is_refused(runner: LocalRunner | AskedRunner, target: Target, name: str, words: str) -> None:
    failure = runner.run(candidate(target), build(name, target))
    assert isinstance(failure, Failure)
    assert failure.kind == "incorrect"
    assert words in failure.message


@pytest.mark.parametrize("name", ["overruns", "writes its input", "crash"])
def test_a_fault_is_a_crash_and_the_next_trial_works(worker: AskedRunner, target: Target, name: str) -> None:
    failure = worker.run(candidate(target), build(name, target))
    assert isinstance(failure, Failure)
    assert failure.kind == "crash"
    assert "SIGSEGV" in failure.message
    assert isinstance(worker.run(candidate(target), build("good", target)), MeasureResult)


def test_a_hang_is_a_timeout(target: Target) -> None:
    with Runner(target, QUICK, timeout=1.5) as runner:
        good = build("good", target)
        assert isinstance(runner.run(candidate(target), good), MeasureResult)
        assert runner.run(candidate(target), build("hang", target)) == Failure("timeout", "no answer within 1.5 s")


def test_an_object_that_does_not_link_is_a_compile_failure(runner: LocalRunner | AskedRunner, target: Target) -> None:
    good = build("good", target)
    kernel = good.kernel
    broken = KernelObject("absent", kernel.object_code, "", kernel.operands, 0, 64, 0, 0)
    failure = runner.run(candidate(target), BuildResult(broken, "[]", "direct", 0.0))
    assert isinstance(failure, Failure)
    assert (failure.kind, "absent" in failure.message) == ("compile", True)


def test_a_hopeless_kernel_gets_one_round(runner: LocalRunner | AskedRunner, target: Target) -> None:
    result = runner.run(candidate(target), build("good", target), RunOptions(incumbent=1e-9))
    assert isinstance(result, MeasureResult)
    assert result.batches <= 2, "of one round"


def test_a_time_without_an_incumbent_is_taken_more_carefully(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[TimingPolicy] = []

    def beside(*words: object) -> tuple[Timing, list[Taken]]:
        policy = words[4]
        assert isinstance(policy, TimingPolicy)
        used.append(policy)
        return Timing(1e-3, 0.0, 1, 1, 100.0), []

    monkeypatch.setattr(local_runner, "time_beside", beside)
    monkeypatch.setattr(local_runner, "time_steadily", lambda *words, **more: Timing(1e-3, 0.0, 1, 1, 100.0))
    with LocalRunner(target, QUICK) as runner:
        for incumbent in (None, None, 9e-4):  # the first is the yardstick of the others, and none is doubted
            assert isinstance(
                runner.run(candidate(target), build("good", target), RunOptions(incumbent)), MeasureResult
            )
    assert used == [*[QUICK.without_incumbent()] * 3, QUICK]


def test_compare_times_the_good_ones_and_says_what_is_wrong_with_the_others(
    runner: LocalRunner | AskedRunner, target: Target
) -> None:
    builds = [build(name, target) for name in ("good", "wrong", "good")]
    first, second, third = runner.compare(candidate(target), builds, rounds=4)
    assert isinstance(first, MeasureResult)
    assert isinstance(third, MeasureResult)
    assert 1 <= first.batches <= 4 and 1 <= third.batches <= 4, "of quiet rounds, or of all where none was quiet"
    assert first.probe_gflops > 0 and third.probe_gflops > 0
    assert isinstance(second, Failure)
    assert second.kind == "incorrect"
    assert runner.compare(candidate(target), [], rounds=2) == []


def test_compare_survives_a_crash(worker: AskedRunner, target: Target) -> None:
    results = worker.compare(candidate(target), [build(name, target) for name in ("good", "crash")])
    assert [result.kind for result in results if isinstance(result, Failure)] == ["crash", "crash"]


def test_the_peak_is_measured_where_the_kernels_run(worker: AskedRunner) -> None:
    peak = worker.peak(0.0)
    assert peak.gflops > 0
    assert Peak.from_json(peak.to_json()) == peak
    wrongs: list[Json] = [{"gflops": -1.0, "doubt": ""}, {"gflops": float("inf"), "doubt": ""}, {}, None]
    for wrong in wrongs:
        with pytest.raises(MeasureError, match="no peak"):
            Peak.from_json(wrong)


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": 0.0}, {"seconds": -1.0}, {"seconds": float("nan")}, {"seconds": "1"}, {"batches": 0},
        {"number": 1.5}, {"spread": float("inf")}, {"disturbed": 1}, {"probe_gflops": None}, {"unknown": 1},
    ],
)  # fmt: skip
def test_what_no_clock_gives_is_no_result(change: dict[str, Json]) -> None:
    good = MeasureResult(1e-6, 0.1, 3, 10, 90.0, 0.0, 0.0, 1e-6)
    assert MeasureResult.from_json(good.to_json()) == good
    with pytest.raises(MeasureError, match="no measure result"):
        MeasureResult.from_json({**good.to_json(), **change})


@pytest.mark.parametrize(
    "change", [{"steps": 1}, {"seconds": "soon"}, {"seconds": -1.0}, {"kernel": []}, {"kernel": {}}]
)
def test_what_no_builder_gives_is_no_build(target: Target, change: dict[str, Json]) -> None:
    message = build("good", target).to_message()
    with pytest.raises(MeasureError, match="no build"):
        BuildResult.from_message(Message({**message.body, **change}, message.blobs))
    with pytest.raises(MeasureError, match="no build"):
        BuildResult.from_message(Message(message.body))


def test_cold_weights_change_the_addresses_and_not_the_verdict(target: Target) -> None:
    with LocalRunner(target, QUICK) as runner:
        weighted = build("good", target, constant=True)
        assert [operand.name for operand in cold_operands(weighted.kernel)] == ["in0"]
        assert cold_operands(build("good", target).kernel) == []
        result = runner.run(candidate(target), weighted, RunOptions(weight_bytes=100 * ROWS * 64))
        assert isinstance(result, MeasureResult)


def test_messages_carry_candidates_and_kernels_unchanged(target: Target) -> None:
    given = candidate(target)
    assert MeasureInput.from_json(given.to_json()) == given
    made = build("good", target)
    assert BuildResult.from_message(made.to_message()) == made


def test_a_target_of_another_machine_is_refused_at_once() -> None:
    absent = Target("x86_64", "future", ("avx2", "avx9000", "fma"), 1, 1 << 15, 1 << 20, 1 << 25, core_of("future", ()))
    for kind in (LocalRunner, Runner):
        with pytest.raises(TargetError, match="avx9000"):
            kind(absent)
