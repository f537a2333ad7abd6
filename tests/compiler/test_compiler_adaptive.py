"""Shapes that come often have programs of their own, others run in larger ones, and nobody chooses which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.compiler.adaptive import AdaptiveModel
from autotune.compiler.again import OFTEN
from autotune.compiler.staged import StagedModel
from autotune.compiler.stages import Making
from autotune.errors import InputError
from autotune.graph import open_model
from tests.compiler.test_compiler_bucketed import attention
from tests.compiler.test_compiler_staged import TARGET, Array, Counting, data, model_of

pytestmark = pytest.mark.usefixtures("kept")

ATTENTION = attention().SerializeToString()


def adaptive(source: bytes, compiler: Counting) -> AdaptiveModel:
    return AdaptiveModel(open_model(source), Making(compiler, target=TARGET), TARGET)


def rows(count: int) -> dict[str, Array]:
    return {"x": data(count, 4, seed=count)}


def layer() -> bytes:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, ("n", 4))}, tensors={"w": data(4, 8)})
    return bytes(model.SerializeToString())


def test_one_shape_is_compiled_for_just_that() -> None:
    compiler = Counting()
    model = adaptive(layer(), compiler)
    for _ in range(3):
        model.run(rows(5))
    assert [graph.inputs[0].shape for graph in compiler.graphs] == [(5, 4)]
    assert model._buckets is None  # nobody has looked whether it could be padded


def test_other_shapes_run_in_larger_ones() -> None:
    compiler = Counting()
    model = adaptive(layer(), compiler)
    exact = StagedModel(open_model(layer()), Making(Counting()))
    for count in (5, 30, 5, 29, 27, 31, 3, 5):
        (found,), (wanted,) = model.run(rows(count)), exact.run(rows(count))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    model.wait()
    made = [graph.inputs[0].shape[0] for graph in compiler.graphs]
    assert made[0] == 5 and 29 not in made and 27 not in made
    assert {use.inputs["x"][0] for use in model.shapes()} == set(made)


def test_a_first_shape_without_elements_tells_nothing() -> None:
    model = adaptive(layer(), Counting())
    for count in (0, 5, 0, 7):
        (found,) = model.run(rows(count))
        np.testing.assert_allclose(found, np.tanh(rows(count)["x"] @ data(4, 8)), rtol=1e-5, atol=1e-6)


def test_a_shape_that_comes_often_gets_a_program() -> None:
    compiler = Counting()
    model = adaptive(layer(), compiler)
    model.run(rows(5))
    for _ in range(OFTEN):
        (before,) = model.run(rows(29))
        model.run(rows(5))
    model.wait()
    assert (29, 4) in [graph.inputs[0].shape for graph in compiler.graphs]
    made = len(compiler.graphs)
    np.testing.assert_allclose(model.run(rows(29))[0], before, rtol=1e-5, atol=1e-6)
    assert len(compiler.graphs) == made


def test_what_was_prepared_is_used() -> None:
    compiler = Counting()
    model = adaptive(layer(), compiler)
    model.prepare({"n": 29})
    model.prepare({"n": 7})
    for count in (29, 7, 29):
        model.run(rows(count))
    assert [graph.inputs[0].shape[0] for graph in compiler.graphs] == [29, 7]
    with pytest.raises(InputError):
        model.prepare({})


def test_what_cannot_be_padded_is_compiled_for_each_shape() -> None:
    nodes = [helper.make_node("ReduceMean", ["x"], ["m"], axes=[0]), helper.make_node("Sub", ["x", "m"], ["y"])]
    source = model_of(nodes, {"x": (TensorProto.FLOAT, ("n", 4))}).SerializeToString()
    compiler = Counting()
    model = adaptive(source, compiler)
    for count in (5, 7, 5, 9):
        np.testing.assert_allclose(
            model.run(rows(count))[0], rows(count)["x"] - rows(count)["x"].mean(0), rtol=1e-4, atol=1e-5
        )
    assert [graph.inputs[0].shape[0] for graph in compiler.graphs] == [5, 7, 9]


@pytest.mark.parametrize("lengths", [(6, 9, 6, 17, 12), (9, 9, 3, 1, 30)])
def test_masks_are_right(lengths: Sequence[int]) -> None:
    model = adaptive(ATTENTION, Counting())
    exact = StagedModel(open_model(ATTENTION), Making(Counting()))
    for n, length in enumerate(lengths):
        feeds = {
            declared.name: np.random.default_rng(n).standard_normal(
                [dim if isinstance(dim, int) else {0: 1 + n % 3}.get(place, length)
                 for place, dim in enumerate(declared.dims or ())]
            ).astype(np.float32)
            for declared in model.inputs
        }  # fmt: skip
        for one, other in zip(model.run(feeds), exact.run(feeds), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_wrong_feeds_are_told() -> None:
    model = adaptive(layer(), Counting())
    model.run(rows(5))
    model.run(rows(9))
    wrong: Any = {"x": data(3, 5)}
    with pytest.raises(InputError, match="x"):
        model.run(wrong)
    with pytest.raises(InputError):
        model.run({})
