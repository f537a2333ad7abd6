"""Random operators: with a seed the reference's numbers, without one numbers of the node's name; every run the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.errors import ModelError, UnsupportedError
from autotune.graph import evaluate_graph, load_model
from tests.graph.graph_models import Array, build, check, random


def drawn(model: onnx.ModelProto, feeds: dict[str, Array] | None = None) -> Array:
    """What the model computes, twice the same."""
    first, second = (evaluate_graph(load_model(model.SerializeToString()), feeds or {}) for _ in "ab")
    np.testing.assert_array_equal(first["y"], second["y"])
    return first["y"]


@pytest.mark.parametrize("seed", [0.0, 7.0])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [("RandomNormal", {}), ("RandomNormal", {"mean": 3.0, "scale": 0.5}), ("RandomUniform", {}),
     ("RandomUniform", {"low": -2.0, "high": 5.0}), ("RandomUniform", {"dtype": TensorProto.DOUBLE})],
)  # fmt: skip
def test_a_seed_gives_the_reference_s_numbers(op: str, attrs: dict[str, Any], seed: float) -> None:
    check(build(helper.make_node(op, [], ["y"], shape=[3, 4], seed=seed, **attrs), {}, opset=15), {})
    feeds = {"x": random(3, 4)}
    check(build(helper.make_node(f"{op}Like", ["x"], ["y"], seed=seed, **attrs), feeds, opset=15), feeds)


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_without_a_seed_the_name_decides(op: str) -> None:
    feeds = {"x": np.full((64, 64), 0.25, np.float32)}
    one, same, other = (
        drawn(build(helper.make_node(op, ["x"], ["y"], name=name), feeds, opset=15), feeds)
        for name in ("one", "one", "other")
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).mean() > 0.2
    mean, deviation = {"RandomNormalLike": (0, 1), "RandomUniformLike": (0.5, 12**-0.5), "Bernoulli": (0.25, 0.433)}[op]
    assert one.mean() == pytest.approx(mean, abs=0.05)
    assert one.std() == pytest.approx(deviation, abs=0.05)


def test_two_nodes_draw_apart_and_two_runs_alike() -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], [name]) for name in "ab"]
    feeds = {"x": random(4, 5)}
    model = build([*nodes, helper.make_node("Sub", ["a", "b"], ["y"])], feeds)
    assert np.abs(drawn(model, feeds)).min() > 0
    session = autotune.InferenceSession(model.SerializeToString(), target="native -num-cores=1")
    np.testing.assert_array_equal(session.run(None, feeds)[0], session.run(None, {"x": random(4, 5, seed=1)})[0])


@pytest.mark.parametrize("dtype", [TensorProto.INT32, TensorProto.INT64])
def test_classes_come_as_often_as_they_are_likely(dtype: int) -> None:
    likely = np.asarray([[0.1, 0.2, 0.7, 0.0], [0.0, 0.5, 0.0, 0.5]], np.float32)
    with np.errstate(divide="ignore"):
        feeds = {"x": np.log(likely) + 3}
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=4000, dtype=dtype, seed=2.0)
    found = drawn(build(node, feeds), feeds)
    assert found.dtype == helper.tensor_dtype_to_np_dtype(dtype)
    for row, wanted in zip(found, likely, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=4) / 4000, wanted, atol=0.03)


def test_impossible_draws() -> None:
    integers = build(helper.make_node("RandomNormalLike", ["x"], ["y"]), {"x": np.zeros(3, np.int64)})
    with pytest.raises(ModelError, match="draws i64 numbers"):
        load_model(integers.SerializeToString())
    many = build(helper.make_node("RandomUniform", [], ["y"], shape=[2**20, 2**20]), {})
    with pytest.raises(UnsupportedError, match="random numbers, more than"):
        load_model(many.SerializeToString())
    rows = build(helper.make_node("Multinomial", ["x"], ["y"]), {"x": random(3)})
    with pytest.raises(ModelError, match="needs rows of probabilities"):
        load_model(rows.SerializeToString())
