"""Races: programs timed in a process of their own; what breaks there is one line here."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.engines.race import Racer, RaceResult, request_of, result_of
from autotune.errors import MeasureError
from autotune.graph import load_model, optimize
from autotune.target import Target
from tests.cli.cli_models import conv_model, save

TARGET = Target.parse("native -num-cores=1")
FEEDS = {"x": np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CompiledModel:
    return compile_graph(optimize(load_model(save(conv_model(), tmp_path_factory.mktemp("m") / "m.onnx"))), TARGET)


@pytest.fixture(scope="module")
def racer() -> Iterator[Racer]:
    with Racer(TARGET, timeout=60) as racer:
        yield racer


def test_programs_are_timed_in_turn_and_their_answers_compared(racer: Racer, model: CompiledModel) -> None:
    found = racer.race({"one": model, "two": model}, FEEDS, flops=model.program.flops, rounds=3, reference="two")
    assert [len(samples) for samples in found.samples] == [3, 3]
    assert all(seconds > 0 for samples in found.samples for seconds in samples)
    assert found.error == 0.0


def test_a_race_may_come_from_another_machine(racer: Racer, model: CompiledModel) -> None:
    asked = request_of({"one": model}, FEEDS, flops=model.program.flops, rounds=2, reference="one")
    assert [len(samples) for samples in result_of(racer.run(asked)).samples] == [2]


def test_what_breaks_is_told_in_one_line(racer: Racer, model: CompiledModel) -> None:
    short = {"x": np.zeros(3, np.float32)}
    with pytest.raises(MeasureError, match="the model could not be timed: runtime: ValueError"):
        racer.race({"one": model}, short, flops=1, rounds=1, reference="one")


def test_what_is_no_result_is_refused() -> None:
    good = RaceResult(((1.0, 2.0), (1.5, 2.5)), 0.0, "busy")
    assert RaceResult.from_json({"samples": [[1.0, 2.0], [1.5, 2.5]], "error": 0.0, "disturbance": "busy"}) == good
    with pytest.raises(MeasureError, match="no result of a race"):
        RaceResult.from_json({"samples": "fast"})
