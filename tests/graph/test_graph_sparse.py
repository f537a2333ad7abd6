"""Sparse initializers and constants are written out, and refused where their indices do not fit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autotune.errors import ModelError
from autotune.graph import evaluate_graph, load_model
from tests.graph.graph_models import build, random


def sparse(values: list[float], indices: list[int] | list[list[int]], dims: list[int]) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.asarray(values, np.float32), "s"),
        numpy_helper.from_array(np.asarray(indices, np.int64)),
        dims,
    )


def both(tensor: onnx.SparseTensorProto) -> list[onnx.ModelProto]:
    """The tensor as an initializer, and as the value of a Constant."""
    feeds, add = {"x": random(2, 3)}, helper.make_node("Add", ["x", "s"], ["y"])
    first = build(add, feeds)
    first.graph.sparse_initializer.append(tensor)
    return [first, build([helper.make_node("Constant", [], ["s"], sparse_value=tensor), add], feeds)]


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_tensors_are_written_out(indices: list[int] | list[list[int]]) -> None:
    x = random(2, 3)
    for model in both(sparse([4, 5], indices, [2, 3])):
        (found,) = evaluate_graph(load_model(model.SerializeToString()), {"x": x}).values()
        np.testing.assert_array_equal(found, x + np.asarray([[0, 4, 0], [0, 0, 5]], np.float32))


def test_a_sparse_tensor_without_values_is_zero() -> None:
    for model in both(sparse([], [], [2, 3])):
        (found,) = evaluate_graph(load_model(model.SerializeToString()), {"x": np.ones((2, 3), np.float32)}).values()
        np.testing.assert_array_equal(found, np.ones((2, 3)))


@pytest.mark.parametrize(
    ("indices", "dims"),
    [([1, 6], [2, 3]), ([-1, 2], [2, 3]), ([1], [2, 3]), ([[0, 1], [2, 2]], [2, 3]), ([[0, 1], [1, 2]], [2, 3, 1]),
     ([0, 1], [2**40, 2**20]), ([0, 1], [-2, 3])],
)  # fmt: skip
def test_impossible_sparse_tensors(indices: list[int] | list[list[int]], dims: list[int]) -> None:
    tensor = sparse([4, 5], [0, 1], [2, 3])
    array = np.asarray(indices, np.int64)
    tensor.indices.CopyFrom(numpy_helper.from_array(array))
    tensor.dims[:] = dims
    for model in both(tensor):
        with pytest.raises(ModelError, match="sparse"):
            load_model(model.SerializeToString())
