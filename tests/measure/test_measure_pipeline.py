"""The pipeline's order, its memory of times, and what it does not measure twice; builder and runner are scripted."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import pytest

from autotune.measure.failure import Failure
from autotune.measure.local_runner import RunOptions
from autotune.measure.pipeline import Pipeline
from autotune.measure.spill_filter import SpillFilter
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.target import Target
from tests.measure.toy_kernels import build, candidate


@pytest.fixture(scope="module")
def toy() -> tuple[MeasureInput, BuildResult]:
    target = Target.parse("native -num-cores=1")
    return candidate(target), build("good", target)


@dataclass
class Script:
    """Builds and runs by the config's knobs; writes down what happens."""

    template: BuildResult
    log: list[str] = field(default_factory=list)
    incumbents: list[float | None] = field(default_factory=list)
    waiting: list[tuple[MeasureInput, Future[BuildResult | Failure]]] = field(default_factory=list)
    eager: bool = True
    slots: int = 1

    def submit(self, candidate: MeasureInput) -> Future[BuildResult | Failure]:
        future: Future[BuildResult | Failure] = Future()
        if self.eager:
            self.log.append(f"build {candidate.config['n']}")
            code = str(candidate.config.get("code", candidate.config["n"]))
            spills, fmas = candidate.config.get("spills", 0), candidate.config.get("fmas", 100)
            kernel = replace(self.template.kernel, ir_hash=code, spills=spills, fmas=fmas)  # type: ignore[arg-type]
            made = replace(self.template, kernel=kernel, seconds=0.5)
            future.set_result(Failure("lower", "no") if "bad" in candidate.config else made)
        else:
            self.waiting.append((candidate, future))
        return future

    def run(self, candidate: MeasureInput, build: BuildResult, options: RunOptions) -> MeasureResult | Failure:
        self.log.append(f"run {candidate.config['n']}")
        self.incumbents.append(options.incumbent)
        if "wrong" in candidate.config:
            return Failure("incorrect", "no")
        return MeasureResult(float(candidate.config.get_int("n")), 0.0, 1, 1, 1.0, 0.0, 0.0, 0.0)

    def compare(
        self, candidate: MeasureInput, builds: Sequence[BuildResult], rounds: int, options: RunOptions
    ) -> list[MeasureResult | Failure]:
        self.log.append(f"compare {len(builds)} in {rounds} rounds, weights of {options.weight_bytes} bytes")
        return [Failure("incorrect", "no") for _ in builds]


@dataclass
class Runs:
    """The script's runs as a runner's: each over at once, or when the test says so."""

    script: Script
    slots: int = 1
    eager: bool = True
    waiting: list[tuple[MeasureInput, Future[MeasureResult | Failure]]] = field(default_factory=list)

    def submit(
        self, candidate: MeasureInput, build: BuildResult, options: RunOptions
    ) -> Future[MeasureResult | Failure]:
        future: Future[MeasureResult | Failure] = Future()
        result = self.script.run(candidate, build, options)
        if self.eager:
            future.set_result(result)
        else:
            self.waiting.append((candidate, future))
        return future

    def compare(
        self, candidate: MeasureInput, builds: Sequence[BuildResult], rounds: int, options: RunOptions
    ) -> list[MeasureResult | Failure]:
        return self.script.compare(candidate, builds, rounds, options)


def configs(toy: tuple[MeasureInput, BuildResult], *knobs: dict[str, object]) -> list[MeasureInput]:
    return [replace(toy[0], config=Config.of(entry)) for entry in knobs]


def test_every_candidate_has_its_outcome_in_order(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1])
    found = list(
        Pipeline(script, Runs(script), ahead=8, take_turns=False).measure(
            configs(toy, {"n": 3}, {"n": 9, "bad": 1}, {"n": 1, "wrong": 1}, {"n": 2})
        )
    )
    assert [m.candidate.config["n"] for m in found] == [3, 9, 1, 2]
    kinds = [m.result.kind if isinstance(m.result, Failure) else m.result.seconds for m in found]
    assert kinds == [3.0, "lower", "incorrect", 2.0]
    assert [m.build is None for m in found] == [False, True, False, False]


def test_the_best_time_so_far_goes_to_the_runner(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1])
    pipeline = Pipeline(script, Runs(script), ahead=8, take_turns=False)
    list(pipeline.measure(configs(toy, {"n": 5}, {"n": 7}, {"n": 4})))
    pipeline.incumbent(3.0, toy[0])
    pipeline.incumbent(6.0, toy[0])
    list(pipeline.measure(configs(toy, {"n": 8})))
    assert script.incumbents == [None, 5.0, 5.0, 3.0]


def test_equal_code_is_measured_once(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1])
    found = list(
        Pipeline(script, Runs(script), ahead=8, take_turns=False).measure(
            configs(toy, {"n": 5, "code": "same"}, {"n": 6, "code": "same"})
        )
    )
    assert script.log.count("run 5") == 1
    assert "run 6" not in script.log
    assert found[0].result == found[1].result


def test_hopeless_spills_are_not_run_once_there_is_a_better_kernel(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1])
    pipeline = Pipeline(script, Runs(script), ahead=1, take_turns=False, spill_filter=SpillFilter())
    found = list(
        pipeline.measure(
            configs(
                toy,
                {"n": 5, "spills": 300},  # the first of a task always runs
                {"n": 4, "spills": 400},  # the best so far spills nearly as much
                {"n": 3, "spills": 10},
                {"n": 6, "spills": 100},  # some spill and are good
                {"n": 7, "spills": 101},
                {"n": 2, "spills": 6, "fmas": 4},  # too few to tell
            )
        )
    )
    results = [m.result for m in found]
    assert [r.kind if isinstance(r, Failure) else r.seconds for r in results] == [5.0, 4.0, 3.0, 6.0, "spills", 2.0]
    assert "run 7" not in script.log and found[4].build is not None
    assert str(results[4].message).startswith("not run: 101 spills for 100 multiply-adds, 1.01 for each; the best")  # type: ignore[union-attr]
    # In other layouts it is another task.
    elsewhere = replace(configs(toy, {"n": 9, "spills": 900})[0], interface=Interface(()))
    assert not isinstance(next(iter(pipeline.measure([elsewhere]))).result, Failure)


def test_without_a_filter_all_that_builds_is_run(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1])
    found = list(
        Pipeline(script, Runs(script), ahead=1, take_turns=False).measure(
            configs(toy, {"n": 5}, {"n": 7, "spills": 999})
        )
    )
    assert not any(isinstance(m.result, Failure) for m in found)


def test_a_measurement_says_what_it_cost(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1])
    good, bad = Pipeline(script, Runs(script), ahead=2, take_turns=False).measure(
        configs(toy, {"n": 5}, {"n": 7, "bad": 1})
    )
    assert good.seconds >= 0.5  # its build
    assert 0 <= bad.seconds < 0.5


def test_taking_turns_times_nothing_before_all_is_built(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1], eager=False)
    iterator = Pipeline(script, Runs(script), ahead=8, take_turns=True).measure(configs(toy, {"n": 1}, {"n": 2}))
    done: list[float] = []

    thread = threading.Thread(target=lambda: done.extend(m.result.seconds for m in iterator))  # type: ignore[union-attr]
    thread.start()
    while len(script.waiting) < 2:
        pass
    script.waiting[0][1].set_result(toy[1])
    thread.join(0.2)
    assert script.log == []
    other = replace(toy[1], kernel=replace(toy[1].kernel, ir_hash="other"))
    script.waiting[1][1].set_result(other)
    thread.join(10)
    assert (script.log, done) == (["run 1", "run 2"], [1.0, 2.0])


def test_draws_no_more_candidates_than_it_builds_ahead(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1])

    def source() -> Iterator[MeasureInput]:
        for number in range(1, 6):
            script.log.append(f"draw {number}")
            yield from configs(toy, {"n": number})

    list(Pipeline(script, Runs(script), ahead=2, take_turns=False).measure(source()))
    starts = [entry for entry in script.log if not entry.startswith("build")]
    assert starts[:6] == ["draw 1", "draw 2", "run 1", "draw 3", "run 2", "draw 4"]
    assert starts[-1] == "run 5"


def test_as_many_kernels_are_timed_as_there_are_machines_and_equal_code_still_once(
    toy: tuple[MeasureInput, BuildResult],
) -> None:
    script = Script(toy[1])
    runs = Runs(script, slots=2, eager=False)
    given = configs(toy, {"n": 1}, {"n": 2, "code": "1"}, {"n": 3}, {"n": 4}, {"n": 5})
    done: list[object] = []
    thread = threading.Thread(
        target=lambda: done.extend(m.candidate.config["n"] for m in Pipeline(script, runs, ahead=5).measure(given))
    )
    thread.start()

    def finish(number: int) -> None:
        while len(runs.waiting) <= number:
            pass
        candidate, future = runs.waiting[number]
        future.set_result(MeasureResult(float(candidate.config.get_int("n")), 0.0, 1, 1, 1.0, 0.0, 0.0, 0.0))

    finish(1)  # the third candidate, while the first still runs and the second waits for it
    finish(2)
    finish(0)
    finish(3)
    thread.join(10)
    assert [entry for entry in script.log if entry.startswith("run")] == ["run 1", "run 3", "run 4", "run 5"]
    assert sorted(map(str, done)) == ["1", "2", "3", "4", "5"] and done[0] == 3


def test_without_a_limit_all_builders_and_runners_have_work(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1])
    script.slots = 3
    drawn = 0

    def source() -> Iterator[MeasureInput]:
        nonlocal drawn
        for number in range(1, 100):
            drawn += 1
            yield from configs(toy, {"n": number})

    next(Pipeline(script, Runs(script, slots=2)).measure(source()))
    assert drawn == 10


def test_closing_the_iterator_drops_what_is_queued(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1], eager=False)
    iterator = Pipeline(script, Runs(script), ahead=8, take_turns=False).measure(
        configs(toy, {"n": 1}, {"n": 2}, {"n": 3})
    )
    threading.Timer(0.05, lambda: script.waiting[0][1].set_result(toy[1])).start()
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    assert [future.cancelled() for _, future in script.waiting] == [False, True, True]


def test_builds_alone_come_in_order_and_run_nothing(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1])
    pipeline = Pipeline(script, Runs(script), ahead=2, take_turns=True)
    first, second = pipeline.build(configs(toy, {"n": 3}, {"n": 1, "bad": True}))
    assert isinstance(first, BuildResult)
    assert first.kernel.ir_hash == "3"
    assert second == Failure("lower", "no")
    assert script.log == ["build 3", "build 1"]


def test_what_was_measured_lately_is_not_built_again(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1])
    pipeline = Pipeline(script, Runs(script))
    first, second, bad = configs(toy, {"n": 3}, {"n": 1}, {"n": 2, "bad": True})
    measured = {found.candidate: found.build for found in pipeline.measure([first, bad])}
    script.log.clear()
    builds = pipeline.build([second, first, bad])
    assert script.log == ["build 1", "build 2"]
    assert builds[1] is measured[first]
    assert builds[2] == Failure("lower", "no")


def test_compares_with_the_weights_of_the_model(toy: tuple[MeasureInput, BuildResult]) -> None:
    script = Script(toy[1])
    pipeline = Pipeline(script, Runs(script), ahead=2, take_turns=True, weight_bytes=9)
    assert pipeline.compare(toy[0], [toy[1]] * 2, rounds=5) == [Failure("incorrect", "no")] * 2
    assert script.log == ["compare 2 in 5 rounds, weights of 9 bytes"]
