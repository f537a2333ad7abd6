"""Operators with several results: every pass keeps what is wanted, and computes it once."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from autotune.errors import ModelError
from autotune.graph import load_model, optimize, partition
from tests.graph.graph_models import build, check, random


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("largest", "opset"), [(1, 11), (0, 24)])
def test_top_k(axis: int, largest: int, opset: int) -> None:
    feeds = {"x": random(3, 5, 4)}
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=axis, largest=largest)
    check(build(node, feeds, {"k": np.array([3])}, ("y", "i"), opset), feeds)


def test_top_k_of_old_opsets() -> None:
    feeds = {"x": random(3, 5)}
    expected = -np.sort(-feeds["x"])[:, :2]
    check(build(helper.make_node("TopK", ["x"], ["y", ""], k=2), feeds, opset=1), feeds, [expected])
    node = helper.make_node("TopK", ["x", "k"], ["y", ""])
    check(build(node, feeds, {"k": np.array([2])}, opset=10), feeds, [expected])


def test_more_than_there_are() -> None:
    feeds = {"x": random(3, 5)}
    with pytest.raises(ModelError, match="5 elements"):
        load_model(
            build(helper.make_node("TopK", ["x", "k"], ["y", ""]), feeds, {"k": np.array([6])}).SerializeToString()
        )


def test_only_what_is_read_stays() -> None:
    feeds = {"x": random(3, 5)}
    nodes = [helper.make_node("TopK", ["x", "k"], ["values", "places"]), helper.make_node("Relu", ["values"], ["y"])]
    graph = optimize(load_model(build(nodes, feeds, {"k": np.array([2])}).SerializeToString()))
    assert [dict(node.attrs)["result"] for node in graph.nodes if node.op == "top_k"] == [0]


def test_the_same_twice_is_merged_result_by_result() -> None:
    feeds = {"x": random(3, 5)}
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["a", "b"]),
        helper.make_node("TopK", ["x", "k"], ["c", "d"]),
        helper.make_node("Add", ["a", "c"], ["y"]),
        helper.make_node("Add", ["b", "d"], ["i"]),
    ]
    model = build(nodes, feeds, {"k": np.array([2])}, ("y", "i"))
    graph = optimize(load_model(model.SerializeToString()))
    assert len([node for node in graph.nodes if node.op == "top_k"]) == 2
    assert [len(group.outputs) for group in partition(graph)] == [2, 1, 1]
    check(model, feeds)


def test_constants_fold() -> None:
    feeds = {"x": random(2, 1)}
    nodes = [helper.make_node("TopK", ["c", "k"], ["a", "i"]), helper.make_node("Mul", ["x", "a"], ["y"])]
    tensors = {"c": random(2, 6), "k": np.array([3])}
    model = build(nodes, feeds, tensors, ("y", "i"))
    assert [node.op for node in optimize(load_model(model.SerializeToString())).nodes] == ["mul"]
    check(model, feeds)
