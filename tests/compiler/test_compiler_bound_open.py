"""Runs in programs for more elements, on a way that is taken again, give what the model gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.compiler.bound_open import BoundOpen
from autotune.compiler.bucketed import BucketedModel
from autotune.compiler.stages import Making
from autotune.graph import open_model
from autotune.graph.ir import Array
from tests.compiler.test_compiler_staged import TARGET, Counting, data, model_of

FLOAT = TensorProto.FLOAT
WEIGHTS = {"w": data(8, 6), "table": data(5, 6)}


@pytest.fixture(autouse=True)
def a_core_that_runs_leave_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.machine.allowed_cores", lambda: 2)


def bound(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, Any]], outputs: list[str]) -> BoundOpen:
    source = model_of(nodes, inputs, outputs, WEIGHTS)
    model = BucketedModel(open_model(source.SerializeToString()), Making(Counting(), target=TARGET), TARGET)
    model.want_few()
    return BoundOpen(model, list(inputs), [name for name, (_, dims) in inputs.items() if "N" in dims])


def check(one: BoundOpen, runs: list[dict[str, Array]]) -> None:
    """Each run, and those before it again: nothing of them is left in the padding."""
    for n, feeds in enumerate(runs):
        for _ in range(3):  # the first run of all tells how large programs should be, the third has its own
            wanted = one.model.run(feeds)
            one.model.wait()
        for given in (*runs[:n], feeds):
            found = one.results(given)
            assert found is not None
            for array, other in zip(found, one.model.run(given), strict=True):
                np.testing.assert_array_equal(array, other)
                assert array.flags.c_contiguous and array.dtype == other.dtype
                array.fill(0)  # nobody else has it
        for array, other in zip(one.results(feeds) or (), wanted, strict=True):  # in a larger program, perhaps
            np.testing.assert_allclose(array, other, rtol=1e-5, atol=1e-6)


LAYER = [
    helper.make_node("MatMul", ["x", "w"], ["h"]),
    helper.make_node("Relu", ["h"], ["y"]),
    helper.make_node("ReduceMax", ["y"], ["each"], keepdims=0, axes=[1]),
]


def test_rows_that_need_not_meet() -> None:
    one = bound(LAYER, {"x": (FLOAT, ["N", 8])}, ["y", "each"])
    check(one, [{"x": data(n, 8, seed=n)} for n in (5, 16, 3, 20, 1, 17, 9)])


def test_rows_that_meet_and_what_has_no_open_extent() -> None:
    nodes = [*LAYER[:2], helper.make_node("Softmax", ["y"], ["s"], axis=0), helper.make_node("Add", ["s", "b"], ["z"]),
             helper.make_node("ReduceMax", ["y"], ["all"], keepdims=0, axes=[0])]  # fmt: skip
    one = bound(nodes, {"x": (FLOAT, ["N", 8]), "b": (FLOAT, [6])}, ["z", "all"])
    check(one, [{"x": data(n, 8, seed=n), "b": data(6, seed=n + 1)} for n in (20, 4, 18, 16)])


def test_two_inputs_as_long_as_each_other() -> None:
    nodes = [*LAYER[:2], helper.make_node("Mul", ["y", "share"], ["z"])]
    one = bound(nodes, {"x": (FLOAT, ["N", 8]), "share": (FLOAT, ["N", 1])}, ["z"])
    check(one, [{"x": data(n, 8, seed=n), "share": data(n, 1, seed=n + 1)} for n in (7, 2, 30)])


def test_what_is_not_there_yet_or_has_no_elements_is_for_the_model() -> None:
    one = bound(LAYER, {"x": (FLOAT, ["N", 8])}, ["y", "each"])
    assert one.results({"x": data(5, 8)}) is None
    check(one, [{"x": data(5, 8)}])
    assert one.results({"x": data(0, 8)}) is None
    assert one.results({"x": data(17, 8)}) is None
    assert one.results({"x": data(6, 8)}) is not None


def test_results_that_are_no_memory_of_the_program() -> None:
    nodes = [*LAYER[:2], helper.make_node("Identity", ["x"], ["same"])]
    one = bound(nodes, {"x": (FLOAT, ["N", 8])}, ["y", "same"])
    one.model.run({"x": data(5, 8)})
    found = one.results({"x": data(5, 8)})
    assert found is None or all(np.array_equal(a, b) for a, b in zip(found, one.model.run({"x": data(5, 8)})))


def test_a_wrong_index_is_for_the_model() -> None:
    nodes = [helper.make_node("Gather", ["table", "i"], ["y"])]
    one = bound(nodes, {"i": (TensorProto.INT64, ["N"])}, ["y"])
    check(one, [{"i": np.asarray([1, 4, -5])}])
    assert one.results({"i": np.asarray([1, 5, 2])}) is None
    check(one, [{"i": np.asarray([0, 3])}])


def test_few_forms_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.compiler.bound_open.MOST_FITS", 2)
    check(bound(LAYER, {"x": (FLOAT, ["N", 8])}, ["y"]), [{"x": data(n, 8, seed=n)} for n in (5, 4, 3, 2)])
