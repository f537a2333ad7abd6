"""What is refused whatever the shape is found while shapes are open; what may be right for some shape is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from autotune.compiler.outline import outline
from autotune.errors import ModelError, UnsupportedError
from autotune.graph import open_model
from autotune.graph.ir import Array

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
FLOAT = TensorProto.FLOAT


Dims = tuple[str | int | None, ...]


def model(*nodes: NodeProto, dims: Dims = ("N", 8), weights: Mapping[str, Array] | None = None) -> ModelProto:
    """Nodes from `x` to `y`, whose shape the run decides."""
    graph = helper.make_graph(
        [*nodes],
        "open",
        [helper.make_tensor_value_info("x", FLOAT, dims)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=8)


ON = {"on": np.asarray(True)}
TRAINED = helper.make_node("Dropout", ["t", "", "on"], ["y"], "drop")
RELU = helper.make_node("Relu", ["x"], ["t"], "relu")


@pytest.mark.parametrize("dims", [("N", 8), (None, 8), ("N", 8, "H", "W"), ("N", 8, None, 32)])
def test_an_attribute_that_no_shape_makes_right_is_found(dims: Dims) -> None:
    with pytest.raises(UnsupportedError, match=r"1 unsupported node\(s\): node 'drop' .*training"):
        outline(open_model(model(RELU, TRAINED, dims=dims, weights=ON)))


def test_all_such_nodes_are_named_at_once() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("BiasDropout", ["x", "s"], ["b"], "bias", domain="com.microsoft", surprise=1),
        helper.make_node("Inverse", ["x"], ["c"], "inverse", domain="com.microsoft", surprise=2),
        helper.make_node("Sum", ["a", "b", "c"], ["y"], "sum"),
    ]
    weights = {"s": np.ones(8, np.float32)}
    with pytest.raises(UnsupportedError) as caught:
        outline(open_model(model(*nodes, dims=("N", "N", 8, 8), weights=weights)))
    assert "'bias'" in str(caught.value) and "'inverse'" in str(caught.value)
    listed: Any = caught.value.values["unsupported"]
    assert [one["first"] for one in listed] == ["bias", "inverse"]


def test_an_attribute_that_the_operator_has_not_is_found() -> None:
    odd = helper.make_node("Relu", ["x"], ["y"], "relu", slope=0.5)
    with pytest.raises(ModelError, match="Relu has no attribute 'slope' in opset 17"):
        outline(open_model(model(odd)))


def test_what_some_shapes_make_right_passes() -> None:
    """A window of one element with stride 2 crops images of even size, alone."""
    pool = helper.make_node(
        "MaxPool", ["x"], ["y", "places"], "pool", kernel_shape=[1, 1], strides=[2, 2], auto_pad="SAME_UPPER"
    )
    with pytest.raises(UnsupportedError, match="crops"):
        outline(open_model(model(pool, dims=("N", 8, 64, 64))))
    assert outline(open_model(model(pool, dims=("N", 8, "H", "W")))).open


def test_what_is_impossible_for_a_guess_is_none_of_the_models_faults() -> None:
    """Sums of 100 columns, behind which there is what no shape helps: the guesses do not get that far."""
    add = helper.make_node("Add", ["x", "w"], ["t"], "add")
    weights = {"w": np.zeros((100, 1, 1), np.float32)}
    right = helper.make_node("Relu", ["t"], ["y"])
    assert outline(open_model(model(add, right, dims=("N", "C", 8, 8), weights=weights))).open


def test_tensors_of_unknown_rank_wait() -> None:
    unknown = model(RELU, helper.make_node("Neg", ["t"], ["y"]))
    unknown.graph.input[0].type.tensor_type.ClearField("shape")
    assert outline(open_model(unknown)).open
