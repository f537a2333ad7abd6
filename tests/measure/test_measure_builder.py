"""Contract of the builder: a config becomes a kernel that runs, or a failure of the right kind; and from end to end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.measure.builder import AskedBuilder, Builder, algorithm_of
from autotune.measure.failure import Failure
from autotune.measure.pipeline import open_pipeline
from autotune.measure.timing import TimingPolicy
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.ops.registry import algorithms, compute_def
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.schedule.schedule import Schedule
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.replay import Recorded
from autotune.target import Target
from autotune.testing import check_builder

TEMPLATE = str(Path(__file__).parent / "toy_template.py")
SIDES = (WorkloadInput(TensorType("f32", (7, 33))), WorkloadInput(TensorType("f32", (33, 20)), constant=True))
MATMUL = Workload(SIDES, (WorkloadNode.make("matmul", (0, 1), trans_a=False, trans_b=False),), (2,))


def candidate(trouble: str = "none", **knobs: object) -> MeasureInput:
    config = Config.of({"template": "toy.rows", "rows": 2, "trouble": trouble, **knobs})
    return MeasureInput(MATMUL, config, None, Target.parse("native -num-cores=2"))


@pytest.fixture(scope="module", params=["local", "cluster"])
def builder(request: pytest.FixtureRequest) -> Iterator[AskedBuilder]:
    if request.param == "local":
        with Builder(timeout=3.0, memory_bytes=512 << 20, imports=(TEMPLATE,)) as local:
            yield local
        return
    pytest.importorskip("distributed")
    from autotune.fleet.workers import FleetBuilder
    from tests.fleet.cluster import one_worker

    with one_worker(builders=1, timeout=3.0, memory_bytes=512 << 20, imports=(TEMPLATE,)) as fleet:
        yield FleetBuilder(fleet)


def test_it_keeps_the_contract(builder: AskedBuilder) -> None:
    check_builder(builder)


def test_a_build_is_a_kernel_with_its_steps(builder: AskedBuilder) -> None:
    built = builder.build(candidate())
    assert isinstance(built, BuildResult)
    assert [operand.name for operand in built.kernel.operands] == ["in0", "in1", "out0"]
    assert [operand.constant for operand in built.kernel.operands] == [False, True, False]
    assert built.kernel.object_code.startswith(b"\x7fELF")
    assert built.algorithm == "direct"
    assert built.seconds > 0
    assert Schedule.replay(compute_def(MATMUL), built.steps).steps_json() == built.steps


@pytest.mark.parametrize("algorithm", ["direct", ""])
def test_stored_steps_are_built_without_the_template(builder: AskedBuilder, algorithm: str) -> None:
    built = builder.build(candidate())
    assert isinstance(built, BuildResult)
    gone = replace(candidate(), config=Config.of(template="toy.forgotten"))
    stored = replace(gone, recorded=Recorded(built.steps, algorithm, built.kernel.ir_hash))
    assert MeasureInput.from_json(stored.to_json()) == stored
    again = builder.build(stored)
    assert isinstance(again, BuildResult)
    assert (again.kernel, again.steps, again.algorithm) == (built.kernel, built.steps, "direct")


def test_stored_steps_that_give_other_code_are_a_failure(builder: AskedBuilder) -> None:
    built = builder.build(candidate())
    assert isinstance(built, BuildResult)
    other = replace(candidate(), recorded=Recorded("[]", "direct", built.kernel.ir_hash))
    assert builder.build(other) == Failure("schedule", "its steps give other code now")


@pytest.mark.parametrize(
    ("per_group", "groups", "known"),
    [(4, 1, ("direct", "winograd_f2", "winograd_f4")), (1, 4, ("direct", "winograd_rows"))],
)
def test_the_algorithm_follows_from_the_definition(per_group: int, groups: int, known: tuple[str, ...]) -> None:
    weight = WorkloadInput(TensorType("f32", (4, per_group, 3, 3)), True)
    attrs = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": groups}
    node = WorkloadNode.make("conv2d", (0, 1), **attrs)  # type: ignore[arg-type]
    conv = Workload((WorkloadInput(TensorType("f32", (1, 4, 9, 9))), weight), (node,), (2,))
    assert set(known) <= set(algorithms("conv2d"))
    for name in known:
        assert algorithm_of(conv, Schedule(compute_def(conv, name))) == name
    assert algorithm_of(conv, Schedule(compute_def(MATMUL))) == "unknown"


def test_equal_candidates_give_equal_code(builder: AskedBuilder) -> None:
    builds = [builder.build(candidate(rows=rows)) for rows in (1, 2, 2)]
    first, second, third = (build.kernel.ir_hash for build in builds if isinstance(build, BuildResult))
    assert first != second == third


@pytest.mark.parametrize(
    ("trouble", "kind", "words"),
    [
        ("schedule", "schedule", "no such loop: q"),
        ("lower", "lower", "a region is unbounded"),
        ("compile", "compile", "LLVM refused the IR"),
        ("crash", "crash", "SIGSEGV"),
        ("hang", "timeout", "within 3 s"),
        ("bomb", "memory", "512 MiB"),
        ("surprise", "runtime", "ZeroDivisionError: of all things"),
    ],
)
def test_each_trouble_is_a_failure_of_its_kind(builder: AskedBuilder, trouble: str, kind: str, words: str) -> None:
    failure = builder.build(candidate(trouble))
    assert isinstance(failure, Failure)
    assert failure.kind == kind
    assert words in failure.message


@pytest.mark.parametrize(
    ("knobs", "words"),
    [({"rows": 3}, "rows"), ({"colour": 1}, "colour"), ({"template": "toy.absent"}, "toy.absent")],
)
def test_a_config_outside_the_space_is_a_schedule_failure(
    builder: AskedBuilder, knobs: dict[str, object], words: str
) -> None:
    failure = builder.build(candidate("none", **knobs))
    assert isinstance(failure, Failure)
    assert failure.kind == "schedule"
    assert words in failure.message


def test_what_is_built_runs_right() -> None:
    candidates = [candidate(rows=1), candidate("schedule"), candidate(rows=4)]
    candidates.append(replace(candidates[0], target=candidates[0].target))
    policy = TimingPolicy(rounds=2, round_seconds=1e-4, batch_seconds=1e-4)
    target = candidates[0].target
    with open_pipeline(target, policy=policy, weight_bytes=1 << 20, timeout=60, imports=(TEMPLATE,)) as (pipeline, _):
        found = list(pipeline.measure(candidates))
    good = [trial.result for trial in found if isinstance(trial.result, MeasureResult)]
    assert len(good) == 3
    assert all(result.seconds > 0 for result in good)
    assert all(result.max_abs_err <= result.tolerance < 1e-3 for result in good)
    (failed,) = (trial for trial in found if isinstance(trial.result, Failure))
    assert failed.candidate == candidates[1]
    first, same = (trial.result for trial in found if trial.candidate == candidates[0])
    assert first == same or good[0].disturbed
