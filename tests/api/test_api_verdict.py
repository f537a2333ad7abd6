"""The verdict on a model: what noise must not do to it, with clocks that the tests own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import autotune
from autotune.api.observe import ObservedProgram
from autotune.api.verdict import MOST_LOOKS, ModelVerdict, combined, decide, judge
from autotune.compiler.compile import CompiledModel
from autotune.compiler.tasks import kernel_tasks, model_key
from autotune.engines.race import RaceResult
from autotune.errors import ConfigError
from autotune.graph import load_model, optimize, partition
from autotune.measure.builder import build
from autotune.measure.ratio import Ratio
from autotune.measure.types import BuildResult, MeasureResult
from autotune.records import Database, Plan
from autotune.search.recording import Recorder
from autotune.search.task import TuningTask
from autotune.target import Target
from tests.cli.cli_models import conv_model, save

TARGET = Target.parse("native -num-cores=1")
Sample = Callable[[str], float]


@pytest.fixture(autouse=True, scope="module")
def hasty() -> None:
    """Here, rounds are what users get."""


class FakeClock:
    """Stands in for a racer: a program's rounds take what `sample` says of its name."""

    def __init__(self, sample: Sample, error: float = 0.0, disturbance: str = "") -> None:
        self.sample, self.error, self.disturbance = sample, error, disturbance
        self.rounds: list[int] = []

    def race(
        self, programs: Mapping[str, CompiledModel], feeds: object, *, flops: int, rounds: int, reference: str
    ) -> RaceResult:
        assert reference == "untuned"
        self.rounds.append(rounds)
        samples = tuple(tuple(self.sample(name) for _ in range(rounds)) for name in programs)
        return RaceResult(samples, self.error if len(programs) > 1 else 0.0, self.disturbance)


def noisy(rng: random.Random, tuned: float = 1e-3, untuned: float = 1e-3) -> Sample:
    """A third of all rounds are disturbed, each by something else."""
    seconds = {"tuned": tuned, "untuned": untuned}
    return lambda name: seconds[name] * rng.gauss(1.0, 0.03) * (rng.uniform(1, 4) if rng.random() < 0.3 else 1.0)


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> ObservedProgram:
    graph = optimize(load_model(save(conv_model(), tmp_path_factory.mktemp("m") / "m.onnx")))
    return ObservedProgram(graph, {})


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "db.sqlite") as opened:
        yield opened


def add_record(database: Database, observed: ObservedProgram) -> None:
    """A schedule other than the default for one kernel, so that there are two programs."""
    found = next(task for task in kernel_tasks(observed.graph, TARGET) if task.workload.anchor is not None)
    task = TuningTask.of(found.workload, TARGET, interface=found.interface)
    rng = random.Random(0)
    default = build(task.candidate(task.space.default()))
    assert isinstance(default, BuildResult)
    while True:
        config = task.space.sample(rng)
        built = build(task.candidate(config))
        if isinstance(built, BuildResult) and built.kernel.ir_hash != default.kernel.ir_hash:
            break
    result = MeasureResult(1e-6, 0.0, 8, 10, 100.0, 0.0, 0.0, 1e-5)
    Recorder(database, 1.0).add(task, config, built, result, 1.0)


def verdict_of(database: Database, observed: ObservedProgram, clock: FakeClock, **how: object) -> ModelVerdict:
    return judge(observed, TARGET, database, clock, rounds=lambda flops, more: 30, **how)  # type: ignore[arg-type]


def stored(database: Database, observed: ObservedProgram) -> Plan | None:
    return database.plan(model_key(partition(observed.graph)), TARGET.key)


@pytest.mark.parametrize("seed", range(5))
def test_a_model_whose_kernels_are_all_at_their_defaults_is_not_faster(
    database: Database, observed: ObservedProgram, seed: int
) -> None:
    """As when five trials, every kernel at 1.00×, claimed 1.17×."""
    found = verdict_of(database, observed, FakeClock(noisy(random.Random(seed))))
    assert (found.speedup, found.interval, found.same, found.tuned) == (1.0, (1.0, 1.0), True, True)
    assert found.tuned_seconds == found.untuned_seconds


def test_reruns_without_new_trials_repeat_the_verdict(database: Database, observed: ObservedProgram) -> None:
    """As when 1.08× became 0.86× with 0 new trials, and the records were left unused."""
    add_record(database, observed)
    first = verdict_of(database, observed, FakeClock(noisy(random.Random(1), 1.00e-3, 1.08e-3)))
    assert first.tuned
    for seed in range(2, 6):
        clock = FakeClock(noisy(random.Random(seed), 1.0e-3, 0.86e-3))
        again = verdict_of(database, observed, clock)
        assert again == replace(first, repeated=True)
        assert clock.rounds == []


def test_what_rounds_that_cannot_tell_say_against_is_not_used(database: Database, observed: ObservedProgram) -> None:
    """As when a median of 0.95 counted as tuned, because its interval reached 1.01."""
    add_record(database, observed)
    for seed in range(20):
        found = verdict_of(database, observed, FakeClock(noisy(random.Random(seed))), wish="again")
        plan = stored(database, observed)
        assert plan is not None and plan.tuned == found.tuned
        assert found.speedup >= 1 or not found.tuned


def test_what_is_shown_to_be_slower_is_dropped_and_comes_back_on_evidence_only(
    database: Database, observed: ObservedProgram
) -> None:
    add_record(database, observed)
    slow = FakeClock(lambda name: 2e-3 if name == "tuned" else 1e-3)
    assert not verdict_of(database, observed, slow).tuned
    even = FakeClock(lambda name: 1e-3)
    found = verdict_of(database, observed, even, wish="again")
    assert not found.tuned and not found.decided
    assert even.rounds == [30] * MOST_LOOKS, "more rounds are run while they cannot tell"
    fast = FakeClock(lambda name: 1e-3 if name == "tuned" else 2e-3)
    assert verdict_of(database, observed, fast, wish="again").tuned


def test_a_verdict_is_given_anew_when_a_kernel_has_changed(database: Database, observed: ObservedProgram) -> None:
    verdict_of(database, observed, FakeClock(lambda name: 1e-3))
    add_record(database, observed)
    found = verdict_of(database, observed, FakeClock(lambda name: 1e-3 if name == "tuned" else 2e-3))
    assert not found.repeated and found.speedup == 2.0


def test_few_rounds_are_no_evidence(database: Database, observed: ObservedProgram) -> None:
    add_record(database, observed)
    clock = FakeClock(lambda name: 2e-3 if name == "tuned" else 1e-3)
    found = judge(observed, TARGET, database, clock, rounds=lambda flops, more: 0 if more else 3)
    assert found.interval is None and not found.tuned and not found.decided


def test_a_wish_counts_more_than_the_clock_and_wrong_answers_more_than_a_wish(
    database: Database, observed: ObservedProgram
) -> None:
    add_record(database, observed)
    slow = FakeClock(lambda name: 2e-3 if name == "tuned" else 1e-3)
    assert verdict_of(database, observed, slow, wish="tuned").tuned
    assert verdict_of(database, observed, slow).asked_for, "it stands"
    fast = FakeClock(lambda name: 1e-3 if name == "tuned" else 2e-3)
    assert not verdict_of(database, observed, fast, wish="untuned").tuned
    wrong = FakeClock(lambda name: 1e-3, error=0.5)
    assert not verdict_of(database, observed, wrong, wish="tuned").tuned
    with pytest.raises(ConfigError, match="unknown verdict 'fast'; known: measured, again, tuned, untuned"):
        autotune.tune("relu data=8", TARGET, database, verdict="fast")


def test_what_disturbed_the_timing_is_told(database: Database, observed: ObservedProgram) -> None:
    found = verdict_of(database, observed, FakeClock(lambda name: 1e-3, disturbance="other programs took 40 %"))
    assert found.disturbance == "other programs took 40 %"
    again = verdict_of(database, observed, FakeClock(lambda name: 1e-3))
    assert again == replace(found, repeated=True), "it is said again as long as the verdict stands"


def test_a_decision_follows_the_interval() -> None:
    unsure = Ratio(1.2, (0.9, 1.4), 30)
    plan = Plan(model_key="m", target_key="t", tuned=False, tuned_seconds=1.0, untuned_seconds=1.0, created=1.0)
    assert decide(unsure, 0.0, None)
    assert not decide(unsure, 0.0, plan)
    assert decide(unsure, 0.0, replace(plan, tuned=True))
    likely_slower = Ratio(0.95, (0.88, 1.01), 30)
    assert not decide(likely_slower, 0.0, None)
    assert not decide(likely_slower, 0.0, replace(plan, tuned=True))
    assert decide(Ratio(1.2, (1.1, 1.4), 30), 0.0, plan)
    assert not decide(Ratio(0.9, (0.8, 0.95), 30), 0.0, replace(plan, tuned=True))
    assert not decide(Ratio(2.0, (1.9, 2.1), 30), 1.0, replace(plan, tuned=True))


def test_programs_that_run_one_after_another_are_combined_by_their_times() -> None:
    one = ModelVerdict(1.0, 2.0, 2.0, True, 1e-6, (1.5, 2.5), 30)
    two = ModelVerdict(8.0, 8.0, 1.0, False, 1e-5, (0.8, 1.25), 20)
    found = combined([one, two])
    assert found.speedup == pytest.approx(10 / 9)
    assert found.interval == pytest.approx((10 / (2 / 1.5 + 8 / 0.8), 10 / (2 / 2.5 + 8 / 1.25)))
    assert (found.tuned, found.error, found.rounds) == (False, 1e-5, 20)
    assert combined([one, replace(two, interval=None)]).interval is None
