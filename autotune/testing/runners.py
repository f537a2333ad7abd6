"""The contract of a runner (`autotune.measure.runner.AskedRunner`)."""

from __future__ import annotations

from dataclasses import replace

from autotune.measure.builder import Builder
from autotune.measure.failure import Failure
from autotune.measure.runner import AskedRunner
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.ops import parse_workload
from autotune.search_spaces import default_config
from autotune.target import Target
from autotune.testing.says import says

RIGHT, WRONG, BEYOND = "relu data=64,32", "neg data=64,32", "relu data=4096,4096"
"""A kernel, one of another function, and one that reads and writes beyond the arrays of the first."""


def check_runner(runner: AskedRunner, *, target: str | Target | None = None) -> None:
    """Check that a runner times what is right, refuses what is wrong, and outlives a kernel that crashes.

    Args:
        target: what the runner runs code for; as for `autotune.compile`.

    Raises:
        AssertionError: it does not keep the contract.
    """
    wanted = Target.parse(target)
    candidate = _candidate(RIGHT, wanted)
    with Builder() as builder:
        right, wrong, beyond = (_built(builder, _candidate(text, wanted)) for text in (RIGHT, WRONG, BEYOND))
    with says("a right kernel"):
        _timed(runner.run(candidate, right))
    with says("a kernel that computes something else"):
        _failed(runner.run(candidate, wrong), "incorrect")
    with says("a kernel that leaves its arrays"):
        _failed(runner.run(candidate, beyond), "crash")
    with says("a right kernel after a crash"):
        _timed(runner.run(candidate, right))
    with says("an object that does not link"):
        _failed(runner.run(candidate, replace(right, kernel=replace(right.kernel, symbol="absent"))), "compile")
    with says("kernels timed in turn"):
        one, two, three = runner.compare(candidate, [right, wrong, right], rounds=2)
        _timed(one)
        _failed(two, "incorrect")
        _timed(three)
        assert runner.compare(candidate, [], rounds=2) == [], "there is a result of nothing"
    with says("the peak"):
        assert runner.peak(0.0).gflops > 0, "it is nothing"


def _candidate(text: str, target: Target) -> MeasureInput:
    workload = parse_workload(text)
    return MeasureInput(workload, default_config(workload, target), None, target)


def _built(builder: Builder, candidate: MeasureInput) -> BuildResult:
    found = builder.build(candidate)
    assert isinstance(found, BuildResult), f"{candidate.workload.describe()}: {found.kind}: {found.message}"
    return found


def _timed(found: MeasureResult | Failure) -> None:
    assert isinstance(found, MeasureResult), f"{found.kind}: {found.message}"
    assert found.seconds > 0 and found.batches >= 1 and found.number >= 1, f"no measurement: {found}"
    assert found.max_abs_err <= found.tolerance, "its error is beyond what is allowed"


def _failed(found: MeasureResult | Failure, kind: str) -> None:
    assert isinstance(found, Failure), f"it was timed, and is {kind}"
    assert found.kind == kind, f"{found.kind}, not {kind}: {found.message}"
