"""What padding of an open dimension takes, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.graph import open_model
from autotune.graph.frontend.buckets import CannotPad, Padding, padded_model, padding_of

Node = onnx.NodeProto
node = helper.make_node
WEIGHTS: dict[str, Any] = {"w": np.ones((8, 8), np.float32), "zero": np.zeros((), np.int64),
           "one": np.ones((), np.int64), "ones": np.ones(1, np.int64), "join": np.asarray([0, -1], np.int64),
           "table": np.ones((32, 8), np.float32), "none": np.zeros(1, np.int64)}  # fmt: skip


def model(nodes: Sequence[Node], opset: int = 17, more: Mapping[str, Sequence[str | int]] | None = None) -> bytes:
    inputs = {"x": ("batch", "length", 8), **(more or {})}
    graph = helper.make_graph(
        list(nodes), "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )  # fmt: skip
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]).SerializeToString()
    return data


def padding(*nodes: Node, symbol: str = "length", opset: int = 17) -> Padding:
    return padding_of(open_model(model(nodes, opset)), symbol)


def attention() -> list[Node]:
    return [
        node("MatMul", ["x", "w"], ["q"]),
        node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
        node("MatMul", ["q", "k"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "q"], ["y"]),
    ]


def test_a_batch_is_cut_where_nothing_meets() -> None:
    found = padding(*attention(), symbol="batch")
    assert not found.mixes and not found.masks and not found.zeroed
    assert found.outputs == {"y": (0,)}


def test_tokens_meet_in_a_softmax_which_gets_a_mask() -> None:
    found = padding(*attention())
    assert found.mixes
    (mask,) = found.masks.values()
    assert (mask.axes, mask.fill) == ((2,), -np.inf)
    assert not found.zeroed  # what feeds pad with, zeros, is zeros behind the product
    assert found.outputs == {"y": (1,)}


def test_padding_that_may_be_infinite_is_made_zero_once_for_all_products() -> None:
    nodes = [node("Reciprocal", ["x"], ["r"]), *attention()]
    nodes[1] = node("MatMul", ["r", "w"], ["q"])
    source = open_model(model(nodes))
    found = padding_of(source, "length")
    assert list(found.zeroed) == ["r"]
    padded = padded_model(source, found)
    assert padded.inputs[-1].name == "autotune.valid/length"
    assert len(padded.nodes) == len(source.nodes) + 8  # the row of places, two masks of it, two choices
    assert source.nodes[0].proto.output[0] == "r"  # the model itself stays


@pytest.mark.parametrize(
    ("op", "fill"), [("ReduceMax", -np.inf), ("ReduceMin", np.inf), ("ReduceL2", 0.0), ("ReduceProd", 1.0)]
)
def test_reductions_over_it_get_what_changes_nothing(op: str, fill: float) -> None:
    found = padding(node(op, ["x"], ["y"], axes=[1]))
    (mask,) = found.masks.values()
    assert (mask.axes, mask.fill) == ((1,), fill)


def test_what_comes_in_order_or_first_may_be_padded_but_not_cut() -> None:
    for nodes in (
        [node("CumSum", ["x", "one"], ["y"])],
        [node("Gather", ["x", "zero"], ["y"], axis=1)],
        [node("Shape", ["x"], ["s"]), node("Gather", ["s", "ones"], ["n"]),
         node("Slice", ["table", "none", "n", "none"], ["t"]), node("Add", ["x", "t"], ["y"])],
    ):  # fmt: skip
        found = padding(*nodes)
        assert found.mixes and not found.masks


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("ReduceMean", ["x"], ["y"], axes=[1])], "how many"),
        ([node("CumSum", ["x", "one"], ["y"], reverse=1)], "from the end"),
        ([node("Gather", ["x", "one"], ["y"], axis=1)], "along the open dimension"),
        ([node("Concat", ["x", "x"], ["y"], axis=1)], "joins"),
        ([node("Reshape", ["x", "join"], ["y"])], "part of another"),
        ([node("Flatten", ["x"], ["y"], axis=2)], "part of another"),
        ([node("Slice", ["x", "none", "ones", "ones"], ["y"])], "cuts"),
        ([node("Softmax", ["x"], ["y"], axis=1)], "several"),
        ([node("Size", ["x"], ["n"]), node("Cast", ["n"], ["y"], to=1)], "nobody knows"),
        ([node("Shape", ["x"], ["s"]), node("Cast", ["s"], ["y"], to=1)], "extent of the open dimension"),
        ([node("Shape", ["x"], ["s"]), node("Mul", ["s", "s"], ["y"])], "computes"),
        ([node("Einsum", ["x"], ["y"], equation="bli->bl")], "nobody knows"),
        ([node("Conv", ["x", "w"], ["y"])], "several elements"),
        ([node("Squeeze", ["x"], ["y"])], "depends on the run"),
        ([node("Dropout", ["x"], ["y", "mask"])], "nobody knows"),
        ([node("Softmax", ["x"], ["y"], axis=99)], "range"),
    ],
)  # fmt: skip
def test_what_is_not_proved_is_refused(nodes: list[Node], why: str) -> None:
    opset = 11 if nodes[0].op_type == "Softmax" and nodes[0].attribute[0].i == 1 else 17
    with pytest.raises(CannotPad, match=why):
        padding(*nodes, opset=opset)


def test_rows_and_columns_of_one_dimension_are_not_independent() -> None:
    turn = node("Transpose", ["x"], ["t"], perm=[2, 1, 0])
    found = padding(node("ReduceMax", ["x"], ["r"], axes=[1, 2]), node("Transpose", ["r"], ["c"], perm=[2, 1, 0]),
                    node("Add", ["r", "c"], ["y"]), symbol="batch")  # fmt: skip
    assert found.mixes
    assert not padding(turn, node("Relu", ["t"], ["y"]), symbol="batch").mixes
