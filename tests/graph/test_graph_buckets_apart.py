"""Joined dimensions that are kept apart: the same values, and padding may go where it could not before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.graph import open_model
from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.buckets import CannotPad, kept_apart, padding_of

Array = np.ndarray[Any, Any]
node = helper.make_node
_rng = np.random.default_rng(0)
TENSORS: Mapping[str, Array] = {
    "square": _rng.standard_normal((8, 8), np.float32), "wide": _rng.standard_normal((4, 8), np.float32),
    "vector": _rng.standard_normal(8, np.float32), "row": _rng.standard_normal((1, 8), np.float32),
    "experts": _rng.standard_normal((4, 8, 6), np.float32), "table": _rng.standard_normal((9, 8), np.float32),
    "lines": np.asarray([-1, 8]), "line": np.asarray([-1]), "pairs": np.asarray([-1, 2, 8]), "two": np.asarray([2]),
    "heads": np.asarray([-1, 2, 4]), "[0]": np.asarray([0]), "[1]": np.asarray([1]), "[4]": np.asarray([4]),
    "[6]": np.asarray([6]), "[1,2,1]": np.asarray([1, 2, 1]), "0": np.asarray(0), "1": np.asarray(1),
    "3": np.asarray(3), "[1,2]": np.asarray([1, 2]), "least": np.asarray(-9, np.float32),
    "once and twice": np.asarray([1, 2]),
}  # fmt: skip
INPUTS: Mapping[str, tuple[int, Sequence[str | int]]] = {
    "x": (TensorProto.FLOAT, ("batch", "length", 8)), "mask": (TensorProto.INT64, ("batch", "length")),
}  # fmt: skip
JOIN = node("Reshape", ["x", "lines"], ["rows"])
BACK = [node("Shape", ["x"], ["form"]), node("Reshape", ["done", "form"], ["y"])]
TO_EXPERTS = [
    node("Gemm", ["rows", "wide"], ["scores"], transB=1), node("Softmax", ["scores"], ["shares"], axis=-1),
    node("TopK", ["shares", "two"], ["most", "which"], axis=-1), node("Unsqueeze", ["rows", "[1]"], ["rows3"]),
    node("OneHot", ["[1]", "3", "once and twice"], ["twice"]), node("Reshape", ["twice", "line"], ["repeats"]),
    node("Tile", ["rows3", "repeats"], ["repeated"]), node("Flatten", ["repeated"], ["tokens"], axis=2),
    node("Reshape", ["which", "line"], ["chosen"]), node("Gather", ["experts", "chosen"], ["matrices"]),
    node("Unsqueeze", ["tokens", "[1]"], ["tokens3"]), node("MatMul", ["tokens3", "matrices"], ["products"]),
    node("Squeeze", ["products", "[1]"], ["products2"]), node("Reshape", ["most", "line"], ["weights"]),
    node("Unsqueeze", ["weights", "[1]"], ["weights2"]), node("Mul", ["products2", "weights2"], ["weighed"]),
    node("Reshape", ["weighed", "by token"], ["each"]), node("ReduceSum", ["each", "[1]"], ["sums"], keepdims=0),
    node("Shape", ["mask"], ["words"]), node("Concat", ["words", "[6]"], ["as before"], axis=0),
    node("Reshape", ["sums", "as before"], ["y"]),
]  # fmt: skip
"""Two experts of four for each token, whose tokens are repeated for them."""
IN_LINE = [
    node("Shape", ["mask"], ["extents"]), node("Gather", ["extents", "0"], ["many"]),
    node("Gather", ["extents", "1"], ["long"]), node("Gather", ["extents", "[1]"], ["long1"]),
    node("Range", ["0", "many", "1"], ["i"]), node("Unsqueeze", ["i", "[1,2]"], ["i3"]),
    node("Range", ["0", "long", "1"], ["j"]), node("Unsqueeze", ["j", "[0]"], ["j2"]),
    node("Mul", ["i3", "long1"], ["begins"]), node("Add", ["j2", "begins"], ["places"]),
    node("Flatten", ["mask"], ["line_of_all"], axis=2), node("Gather", ["line_of_all", "places"], ["y"]),
]  # fmt: skip
"""`mask[i, j]`, as tracing writes it."""
CHAINS: Mapping[str, list[onnx.NodeProto]] = {
    "linear": [JOIN, node("Gemm", ["rows", "square", "vector"], ["done"]), *BACK],
    "turned": [JOIN, node("Gemm", ["rows", "square", "row"], ["done"], transB=1), *BACK],
    "flat": [node("Flatten", ["x"], ["rows"], axis=2), node("MatMul", ["rows", "square"], ["done"]), *BACK],
    "residual": [
        JOIN, node("LayerNormalization", ["rows", "vector", "vector"], ["n"], axis=1),
        node("MatMul", ["n", "square"], ["p"]), node("Add", ["p", "rows"], ["q"]), node("Mul", ["row", "q"], ["r"]),
        node("Where", ["positive", "r", "rows"], ["done"]), *BACK,
    ],
    "heads": [
        JOIN, node("Reshape", ["rows", "heads"], ["by_head"]), node("Transpose", ["by_head"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["by_head", "t"], ["products"]), node("Softmax", ["products"], ["p"], axis=2),
        node("MatMul", ["p", "by_head"], ["mixed"]), node("Reshape", ["mixed", "lines"], ["done"]), *BACK,
    ],
    "parts": [
        JOIN, node("Split", ["rows"], ["low", "high"], axis=-1, num_outputs=2),
        node("Concat", ["high", "low"], ["swapped"], axis=1),
        node("Slice", ["swapped", "[0]", "[4]", "[1]"], ["first"]), node("Concat", ["first", "low"], ["done"], axis=-1),
        *BACK,
    ],
    "extents": [
        JOIN, node("Shape", ["rows"], ["of_rows"]), node("Abs", ["rows"], ["positive_rows"]),
        node("Reshape", ["positive_rows", "of_rows"], ["done"]), *BACK,
    ],
    "experts": [JOIN, *TO_EXPERTS],
    "second best": [
        JOIN, node("ArgMax", ["rows"], ["best"], axis=-1), node("Shape", ["best"], ["each"]),
        node("Expand", ["least", "each"], ["lows"]),
        node("ScatterElements", ["rows", "best", "lows"], ["rest"], axis=-1),
        node("ArgMax", ["rest"], ["next"], axis=1), node("ConstantOfShape", ["each"], ["none"]),
        node("GatherElements", ["rest", "next"], ["score"], axis=1), node("Add", ["score", "none"], ["told"]),
        node("Mul", ["told", "rows"], ["done"]), *BACK,
    ],
    "in line": IN_LINE,
    "words": [
        node("Reshape", ["mask", "line"], ["all_words"]), node("Gather", ["table", "all_words"], ["rows"]),
        node("ReduceMax", ["rows", "[1]"], ["y2"]), node("Shape", ["mask"], ["form2"]),
        node("Reshape", ["y2", "form2"], ["y"]),
    ],
}  # fmt: skip
REFUSED: Mapping[str, list[onnx.NodeProto]] = {
    "along rows": [JOIN, node("Softmax", ["rows"], ["done"], axis=0), *BACK],
    "turned rows": [JOIN, node("Transpose", ["rows"], ["t"], perm=[1, 0]), node("MatMul", ["t", "rows"], ["y"])],
    "two of a line": [node("Reshape", ["mask", "line"], ["w"]), node("Gather", ["w", "[1]"], ["y"])],
    "nothing": [JOIN, node("Slice", ["rows", "[0]", "[0]", "[1]"], ["none"]), node("Transpose", ["none"], ["y"])],
    "an output": [JOIN, node("Abs", ["rows"], ["y"])],
    "best of all": [
        JOIN, node("ArgMax", ["rows"], ["best"], axis=0, keepdims=0), node("Gather", ["rows", "best"], ["y"]),
    ],
    "more than a product": [JOIN, node("Gemm", ["rows", "square"], ["done"], alpha=0.5), *BACK],
}  # fmt: skip


def source(nodes: Sequence[onnx.NodeProto], batch: int | str = "batch") -> OnnxModel:
    by_token = {"by token": np.asarray([-1, 2, 6]), "positive": np.asarray([True, False] * 4)}
    named = {name for n in nodes for name in n.input}
    tensors = [numpy_helper.from_array(a, name) for name, a in {**TENSORS, **by_token}.items() if name in named]
    inputs = [helper.make_tensor_value_info(name, kind, (batch, *dims[1:])) for name, (kind, dims) in INPUTS.items()]
    graph = helper.make_graph(list(nodes), "test", inputs, [helper.make_empty_tensor_value_info("y")], tensors)
    return open_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())


def value(model: OnnxModel, batch: int, length: int) -> Array:
    rng = np.random.default_rng(batch)
    feeds = {"x": rng.standard_normal((batch, length, 8), np.float32), "mask": rng.integers(0, 9, (batch, length))}
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in model.initializers.items()]
    inputs = [helper.make_empty_tensor_value_info(i.name) for i in model.inputs]
    outputs = [helper.make_empty_tensor_value_info(name) for name in model.outputs]
    graph = helper.make_graph([entry.proto for entry in model.nodes], "test", inputs, outputs, tensors)
    written = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    given = {declared.name: feeds[declared.name] for declared in model.inputs}
    (found,) = ReferenceEvaluator(written).run(None, given)
    return np.asarray(found)


@pytest.mark.parametrize("chain", CHAINS)
def test_rows_of_a_batch_may_be_padded(chain: str) -> None:
    many = 2 if chain == "extents" else "batch"  # the product of two open dimensions is no extent that is known
    model = source(CHAINS[chain], many)
    with pytest.raises(CannotPad):
        padding_of(model, "length")
    apart = kept_apart(model, "length")
    assert padding_of(apart, "length").symbol == "length"
    for extents in ((2, 3), (2, 1), *([] if many == 2 else [(3, 1), (1, 5)])):
        np.testing.assert_allclose(value(apart, *extents), value(model, *extents), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chain", REFUSED)
def test_what_works_along_joined_rows_gets_them_as_they_are(chain: str) -> None:
    model = source(REFUSED[chain])
    apart = kept_apart(model, "length")
    with pytest.raises(CannotPad):
        padding_of(apart, "length")
    for extents in ((2, 3), (3, 2)):
        np.testing.assert_allclose(value(apart, *extents), value(model, *extents), rtol=1e-4, atol=1e-5)


def test_what_joins_nothing_stays_itself() -> None:
    for nodes in ([node("Abs", ["x"], ["y"])], [node("Reshape", ["x", "form"], ["y"])]):
        model = source([node("Shape", ["x"], ["form"]), *nodes])
        assert kept_apart(model, "length") is model


def test_places_of_another_form_stay_in_their_line() -> None:
    """32 bits, which GatherND does not take, and more dimensions than what they are made of has."""
    narrow = [node("Cast", [name], [f"{name}32"], to=TensorProto.INT32) for name in ("i3", "j2", "long1")]
    small = [node("Mul", ["i332", "long132"], ["begins"]), node("Add", ["j232", "begins"], ["places"])]
    wide = [node("Unsqueeze", ["long1", "[1,2]"], ["long3"]), node("Unsqueeze", ["long3", "[0]"], ["long4"]),
            node("Mul", ["i3", "long4"], ["begins"])]  # fmt: skip
    for nodes in ([*IN_LINE[:8], *narrow, *small, *IN_LINE[10:]], [*IN_LINE[:8], *wide, *IN_LINE[9:]]):
        model = source(nodes)
        apart = kept_apart(model, "length")
        assert "GatherND" not in {entry.proto.op_type for entry in apart.nodes}
        np.testing.assert_array_equal(value(apart, 2, 3), value(model, 2, 3))


def test_a_number_beyond_a_line_is_looked_up_in_it() -> None:
    """Places that may be another row's are no places of two dimensions."""
    beyond = [*IN_LINE[:6], node("Range", ["1", "long", "1"], ["j"]), *IN_LINE[7:]]
    model = source(beyond)
    apart = kept_apart(model, "length")
    assert "GatherND" not in {entry.proto.op_type for entry in apart.nodes}
    np.testing.assert_array_equal(value(apart, 2, 3), value(model, 2, 3))
