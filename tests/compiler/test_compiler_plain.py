"""What cannot be scheduled well is computed by plain loops, and nobody has to find that out from a slow model."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from autotune.api.best import best_schedule
from autotune.compiler.compile import compile_graph
from autotune.errors import ScheduleError
from autotune.graph import Graph, Node, Output, Value, evaluate_graph
from autotune.measure.builder import build
from autotune.measure.failure import Failure
from autotune.measure.types import MeasureInput
from autotune.ops import parse_workload
from autotune.report.coverage import Coverage
from autotune.search_spaces import default_config, lookup, templates_for
from autotune.search_spaces.operators import generic
from autotune.target import Target

TARGET = Target.parse("native -num-cores=1")
SOFTMAX = parse_workload("softmax data=4,8")


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generic template sees through nothing."""

    def refuse(*given: object) -> None:
        raise ScheduleError("cannot see through it")

    monkeypatch.setattr(generic, "generic_schedule", refuse)


def two_softmaxes() -> Graph:
    """Two kernels of one workload, in the same layouts."""
    nodes = tuple(
        Node("softmax", (source,), Value(name, "f32", (4, 8)), (("axis", -1),))
        for source, name in (("x", "y"), ("y", "z"))
    )
    return Graph("g", (Value("x", "f32", (4, 8)),), nodes, (Output("z", "z"),), {})


def test_the_compiler_uses_plain_loops_warns_once_and_counts_them(
    blind: None, caplog: pytest.LogCaptureFixture
) -> None:
    graph = two_softmaxes()
    with caplog.at_level(logging.WARNING):
        compiled = compile_graph(graph, TARGET)
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    np.testing.assert_allclose(compiled.run({"x": x})[0], evaluate_graph(graph, {"x": x})["z"], atol=1e-6)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        "softmax data=4,8 axis=-1: the first template's default does not build: cannot see through it; "
        "it uses the template plain"
    )
    coverage = Coverage.of(compiled.kernels)
    assert coverage.plain_lines() == [
        "2 kernels use plain loops: the first template's default does not build: cannot see through it"
    ]


def test_nothing_is_said_where_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    coverage = Coverage.of(compile_graph(two_softmaxes(), TARGET).kernels)
    assert (coverage.plain, coverage.plain_lines(), caplog.records) == ((), [], [])


def test_a_candidate_that_cannot_be_scheduled_is_a_failure_and_not_plain_loops(blind: None) -> None:
    config = default_config(SOFTMAX, TARGET)
    assert config.template == "generic"
    assert build(MeasureInput(SOFTMAX, config, None, TARGET)) == Failure("schedule", "cannot see through it")


def test_the_best_schedule_is_another_template_s(blind: None) -> None:
    best = best_schedule(SOFTMAX, TARGET)
    assert best.config.template == "plain"
    assert best.reason == "the first template's default does not build: cannot see through it"
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    np.testing.assert_allclose(best.build()(x)[0].sum(-1), 1.0, atol=1e-6)


def test_plain_loops_are_the_last_choice_of_any_workload() -> None:
    assert templates_for(SOFTMAX, TARGET)[-1] is lookup("plain")
