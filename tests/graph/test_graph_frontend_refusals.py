"""Bad models are refused with one clear line; nothing outside the model's folder is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.errors import ModelError, UnsupportedError
from autotune.graph import load_model
from autotune.graph.frontend.node import converts
from tests.graph.graph_models import Array, make_model


def relu(source: str, result: str, name: str = "") -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [result], name=name)


def refusal(
    source: onnx.ModelProto | bytes | Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    kind: type[ModelError] = ModelError,
) -> str:
    if isinstance(source, onnx.ModelProto):
        source = source.SerializeToString()
    with pytest.raises(kind) as caught:
        load_model(source, shapes)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_missing_file(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "absent.onnx")


def test_a_folder(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 a zip file", b"\x00" * 100, b"hello"])
def test_not_onnx(data: bytes) -> None:
    assert "not an ONNX model" in refusal(data)


def test_truncated() -> None:
    weight = np.ones((64, 64), np.float32)
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [1, 64]}, ["y"], {"w": weight})
    data = model.SerializeToString()
    for length in (len(data) // 2, len(data) - 1):
        assert "truncated" in refusal(data[:length])


def test_dynamic_dimension_says_how_to_give_it() -> None:
    model = make_model([relu("x", "y")], {"x": ["N", 3, None]}, ["y"])
    assert "pass --shape x=1,3,1" in refusal(model)
    assert "contradicts" in refusal(model, {"x": (1, 4, 5)})
    assert "3 dimensions" in refusal(model, {"x": (1, 4)})
    assert "no input" in refusal(model, {"z": (1,)})
    assert load_model(model.SerializeToString(), {"x": (2, 3, 5)}).inputs[0].shape == (2, 3, 5)


def test_a_dimension_of_minus_one_is_open() -> None:
    """Paddle's exporter writes so."""
    model = make_model([relu("x", "y")], {"x": [-1, 3]}, ["y"])
    assert "--shape x=1,3" in refusal(model)
    assert [value.shape for value in load_model(model.SerializeToString(), {"x": (4, 3)}).inputs] == [(4, 3)]


def test_a_symbol_is_bound_for_all_inputs() -> None:
    model = make_model([helper.make_node("Add", ["x", "z"], ["y"])], {"x": ["N", 3], "z": ["N", 1]}, ["y"])
    assert [value.shape for value in load_model(model.SerializeToString(), {"x": (4, 3)}).inputs] == [(4, 3), (4, 1)]
    assert "contradicts" in refusal(model, {"x": (4, 3), "z": (5, 1)})


@pytest.mark.parametrize("dims", [[-2, 3], [2**40, 2**40], [2**62, 8], [2**63 - 1]])
def test_negative_and_huge_dimensions(dims: list[int]) -> None:
    assert "impossible" in refusal(make_model([relu("x", "y")], {"x": dims}, ["y"]))


def test_huge_intermediate_is_refused_before_any_memory_is_taken() -> None:
    shape = np.asarray([2**31, 2**31], np.int64)
    model = make_model([helper.make_node("ConstantOfShape", ["s"], ["y"])], {}, ["y"], {"s": shape})
    assert "elements, more than" in refusal(model)
    shape = np.asarray([2**15, 2**15], np.int64)
    model = make_model([helper.make_node("ConstantOfShape", ["s"], ["y"])], {}, ["y"], {"s": shape})
    assert "repeated numbers" in refusal(model)
    pads = np.asarray([0, 2**62], np.int64)
    model = make_model([helper.make_node("Pad", ["x", "p"], ["y"])], {"x": [1]}, ["y"], {"p": pads})
    assert "elements, more than" in refusal(model)


def test_initializer_whose_data_does_not_fit() -> None:
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"], {"w": np.ones(4, np.float32)})
    tensor = model.graph.initializer[0]
    tensor.dims[:] = [5]
    assert "need 20" in refusal(model)
    tensor.dims[:] = [-4]
    assert "impossible dimensions" in refusal(model)
    tensor.ClearField("raw_data")
    tensor.dims[:] = [5]
    tensor.float_data[:] = [1.0]
    assert "does not fit" in refusal(model)


def test_undefined_and_duplicated_names() -> None:
    assert "'nowhere', which nothing defines" in refusal(make_model([relu("nowhere", "y")], {"x": [1]}, ["y"]))
    assert "defined twice" in refusal(make_model([relu("x", "y"), relu("x", "y")], {"x": [1]}, ["y"]))
    assert "defined twice" in refusal(make_model([relu("x", "x")], {"x": [1]}, ["x"]))
    assert "defined by nothing" in refusal(make_model([relu("x", "y")], {"x": [1]}, ["z"]))
    assert "no outputs" in refusal(make_model([relu("x", "y")], {"x": [1]}, []))


def test_cycle() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], name="first"), relu("a", "b"), relu("b", "y")]
    assert "cycle through node 'first' (Add)" in refusal(make_model(nodes, {"x": [1]}, ["y"]))


def test_unsorted_nodes_are_sorted() -> None:
    graph = load_model(make_model([relu("a", "y"), relu("x", "a")], {"x": [1]}, ["y"]).SerializeToString())
    assert [node.name for node in graph.nodes] == ["a", "y"]


def test_deep_graph_needs_no_recursion() -> None:
    nodes = [relu(f"v{i}", f"v{i + 1}") for i in range(10_000)]
    graph = load_model(make_model(nodes, {"v0": [2]}, ["v10000"]).SerializeToString())
    assert len(graph.nodes) == 10_000


def test_all_unknown_operators_are_listed_at_once() -> None:
    nodes = [
        helper.make_node("ImageDecoder", ["x", "x"], ["a"], name="nms"),
        helper.make_node("Fancy", ["x"], ["b"], name="f1", domain="com.acme"),
        helper.make_node("Fancy", ["x"], ["c"], name="f2", domain="com.acme"),
        relu("x", "y"),
    ]
    message = refusal(make_model(nodes, {"x": [1]}, ["y"]), kind=UnsupportedError)
    assert "3 unsupported node(s) of 2 operator(s)" in message
    assert "ImageDecoder ×1 (first: 'nms')" in message
    assert "com.acme.Fancy ×2 (first: 'f1')" in message


def test_all_unsupported_uses_are_listed_at_once() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], name="c1", to=TensorProto.COMPLEX64),
        helper.make_node("Identity", ["a"], ["b"], name="behind"),
        helper.make_node("Cast", ["x"], ["c"], name="c2", to=TensorProto.COMPLEX64),
    ]
    message = refusal(make_model(nodes, {"x": [4]}, ["b", "c"]), kind=UnsupportedError)
    assert "2 unsupported node(s)" in message
    assert "'c1'" in message
    assert "'c2'" in message
    assert "behind" not in message


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (helper.make_node("Conv", ["x", "w"], ["y"], group=0), "groups"),
        (helper.make_node("Conv", ["x", "w"], ["y"], group=3), "channels"),
        (helper.make_node("Conv", ["x", "w"], ["y"], strides=[0, 1]), "must be positive"),
        (helper.make_node("Conv", ["x", "w"], ["y"], strides=[1]), "'strides' has 1 entries"),
        (helper.make_node("Conv", ["x", "w"], ["y"], dilations=[-1, 1]), "must be positive"),
        (helper.make_node("Conv", ["x", "w"], ["y"], pads=[-1, 0, 0, 0]), "non-negative"),
        (helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[2, 2]), "contradicts the weight"),
        (helper.make_node("Conv", ["x", "w"], ["y"], dilations=[9, 9]), "conv2d"),
        (helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="MAYBE"), "unknown auto_pad"),
        (helper.make_node("Conv", ["x", "w"], ["y"], colour=3), "no attribute 'colour'"),
        (helper.make_node("Conv", ["x", "w"], ["y"], group="one"), "wrong type"),
        (helper.make_node("Conv", ["x"], ["y"]), "1 inputs; Conv takes 2 to 3"),
        (helper.make_node("Conv", ["x", ""], ["y"]), "input 1 is missing"),
        (helper.make_node("MaxPool", ["x"], ["y"]), "'kernel_shape' is missing"),
        (helper.make_node("Softmax", ["x"], ["y"], axis=4), "axis 4 is outside"),
        (helper.make_node("Transpose", ["x"], ["y"], perm=[0, 0, 1, 2]), "perm"),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), "matmul"),
        (helper.make_node("Add", ["x", "w"], ["y"]), "broadcast"),
        (helper.make_node("Concat", ["x", "w"], ["y"], axis=0), "concat"),
        (helper.make_node("Reshape", ["x", "s"], ["y"]), "does not fit"),
        (helper.make_node("Add", ["x", "s"], ["y"]), "input 1 is a tensor(int64), others are a tensor(float)"),
    ],
)
def test_impossible_attributes(node: onnx.NodeProto, text: str) -> None:
    tensors: dict[str, Array] = {"w": np.ones((4, 2, 3, 3), np.float32), "s": np.asarray([7, -1], np.int64)}
    assert text in refusal(make_model([node], {"x": [1, 2, 8, 8]}, ["y"], tensors))


def test_opsets() -> None:
    assert "opset 0" in refusal(make_model([relu("x", "y")], {"x": [1]}, ["y"], opset=0))
    assert "upgrade onnx" in refusal(make_model([relu("x", "y")], {"x": [1]}, ["y"], opset=999))


def test_models_without_the_opset_of_onnx() -> None:
    """One that imports others only means the newest; one of before there were imports the first."""
    model = make_model([helper.make_node("Clip", ["x"], ["y"], min=1.0)], {"x": [4]}, ["y"])
    del model.opset_import[:]
    assert "no opset at all" in refusal(model)
    model.ir_version = 2
    assert [node.op for node in load_model(model.SerializeToString()).nodes] == ["clip"]
    model.ir_version = 8
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    assert "no attribute 'min' in opset" in refusal(model)
    model.graph.node[0].ClearField("attribute")
    assert [value.shape for value in load_model(model.SerializeToString()).inputs] == [(4,)]


@pytest.mark.parametrize(
    ("op", "attributes", "text"),
    [
        ("HardSigmoid", {"alpha": 0.25, "consumed_inputs": [0]}, None),
        ("Dropout", {"ratio": 0.25, "is_test": 1, "consumed_inputs": [0]}, None),
        ("Dropout", {"ratio": 0.25}, "is_test=0 is training"),
        ("LRN", {"size": 3, "gamma": 2.0}, "no attribute 'gamma'"),
        ("Split", {"axis": 1, "split": [2]}, None),
    ],
)
def test_forms_of_the_first_opsets(op: str, attributes: dict[str, Any], text: str | None) -> None:
    """What only opset 1 has and means nothing now is passed over; what nobody understands is refused."""
    model = make_model([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": [1, 2, 4, 4]}, ["y"], opset=1)
    if text is None:
        assert load_model(model.SerializeToString()).nodes or op in ("Dropout", "Split")
    else:
        assert text in refusal(model)


def test_output_declared_with_another_dtype() -> None:
    model = make_model([relu("x", "y")], {"x": [1]}, ["y"], output_dtype=TensorProto.INT64)
    assert "declared i64 but computed as f32" in refusal(model)


def test_element_types_without_a_dtype() -> None:
    assert "COMPLEX64" in refusal(make_model([relu("x", "y")], {"x": [1]}, ["y"], dtype=TensorProto.COMPLEX64))
    assert "no tensor of numbers" in refusal(make_model([relu("x", "y")], {"x": [1]}, ["y"], dtype=TensorProto.STRING))


# External data -----------------------------------------------------------------------------------------


def external_model(location: str, **entries: int) -> onnx.ModelProto:
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"], {"w": np.ones(4, np.float32)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return model


def test_external_data_inside_the_folder(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    (tmp_path / "weights.bin").write_bytes(values.tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(external_model("weights.bin", offset=8, length=16).SerializeToString())
    np.testing.assert_array_equal(load_model(path).constants["w"], values[2:])


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../secret.bin", "sub/../../secret.bin", "link.bin", "dir/secret.bin", ""]
)
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\0" * 16)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "dir").symlink_to(tmp_path)
    (folder / "m.onnx").write_bytes(external_model(location).SerializeToString())
    assert "outside the model's folder" in refusal(folder / "m.onnx")


def test_external_data_that_is_missing_short_or_malformed(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    (tmp_path / "w.bin").write_bytes(b"\0" * 15)
    for model, text in (
        (external_model("absent.bin"), "cannot read external data"),
        (external_model("w.bin"), "too short"),
        (external_model("w.bin", length=8), "does not fit"),
        (external_model("w.bin", offset=-1), "does not fit"),
    ):
        path.write_bytes(model.SerializeToString())
        assert text in refusal(path)
    assert "by path" in refusal(external_model("w.bin"))


def test_an_operator_has_one_converter() -> None:
    """Of two, the one imported last would win in silence."""
    with pytest.raises(ValueError, match="Relu has a converter already"):
        converts("Relu")(lambda node: node.input(0))
