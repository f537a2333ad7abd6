"""Which ONNX nodes a kernel stands for, through the passes and the partition."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autotune.graph import Group, load_model, optimize, partition


def groups(nodes: list[onnx.NodeProto], shape: tuple[int, ...], **weights: tuple[int, ...]) -> tuple[Group, ...]:
    """Of the optimised model from `x` to `y`, with random weights of these shapes."""
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(rng.random(s).astype(np.float32) + 0.5, name) for name, s in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return partition(optimize(load_model(model.SerializeToString())))


def test_a_folded_normalisation_leaves_the_convolution_its_name() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"], "bn1"),
        helper.make_node("Relu", ["n"], ["y"], "relu1"),
    ]
    (group,) = groups(nodes, (1, 4, 8, 8), w=(8, 4, 3, 3), s=(8,), b=(8,), m=(8,), v=(8,))
    assert group.origins == ("conv1", "bn1", "relu1")


def test_an_unnamed_node_is_called_after_its_output() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Tanh", ["p"], ["y"])]
    (group,) = groups(nodes, (4, 8), w=(8, 8))
    assert group.origins == ("p", "y")


def test_a_recognised_idiom_has_all_its_nodes() -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], "mean", axes=[-1]),
        helper.make_node("Sub", ["x", "mean"], ["d"], "centre"),
        helper.make_node("Mul", ["d", "d"], ["q"], "square"),
        helper.make_node("ReduceMean", ["q"], ["var"], "variance", axes=[-1]),
        helper.make_node("Add", ["var", "e"], ["ve"], "epsilon"),
        helper.make_node("Sqrt", ["ve"], ["r"], "root"),
        helper.make_node("Div", ["d", "r"], ["z"], "divide"),
        helper.make_node("Mul", ["z", "s"], ["zs"], "scale"),
        helper.make_node("Add", ["zs", "b"], ["y"], "shift"),
    ]
    (group,) = groups(nodes, (4, 64), e=(), s=(64,), b=(64,))
    assert group.workload.nodes[0].op == "layer_norm"
    assert set(group.origins) == {node.name for node in nodes}


def test_merged_branches_have_the_names_of_all() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], "left"),
        helper.make_node("MatMul", ["x", "w1"], ["b"], "right"),
        helper.make_node("Softmax", ["a"], ["sa"], "soft-left"),
        helper.make_node("Softmax", ["b"], ["sb"], "soft-right"),
        helper.make_node("Concat", ["sa", "sb"], ["y"], "both", axis=1),
    ]
    found = groups(nodes, (1, 64), w0=(64, 64), w1=(64, 64))
    products = [group.origins for group in found if group.workload.nodes[0].op == "matmul"]
    assert products == [("left", "right")]


def test_a_value_that_others_read_keeps_its_name_to_itself() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["a", "s"], ["b"], "scale"),
        helper.make_node("Concat", ["a", "b"], ["y"], "join", axis=1),
    ]
    found = groups(nodes, (1, 4, 8, 8), w=(8, 4, 3, 3), s=(8, 1, 1))
    assert sorted(group.origins for group in found) == [("conv1",), ("join",), ("scale",)]
