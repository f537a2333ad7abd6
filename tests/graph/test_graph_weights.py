"""Weights that are read apart are those of protobuf; what is damaged is told as protobuf tells it."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.errors import ModelError
from autotune.graph import open_model
from autotune.graph.frontend import read_model, weights
from autotune.graph.frontend.weights import LARGE, without_weights

RNG = np.random.default_rng(0)
SIDE = 160  # f32 (160, 160) is larger than LARGE


def model() -> onnx.ModelProto:
    """Products with large and small weights, as raw data, as floats, and as an attribute."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, SIDE]) for name in ("x", "y")]
    arrays = [RNG.standard_normal((SIDE, SIDE)).astype(np.float32) for _ in range(3)]
    held = [
        numpy_helper.from_array(arrays[0], "a"),
        numpy_helper.from_array(arrays[0][0], "small"),
        helper.make_tensor("b", TensorProto.FLOAT, [SIDE, SIDE], arrays[1].ravel().tolist()),
        numpy_helper.from_array(arrays[2], "c"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Add", ["p", "small"], ["q"]),
        helper.make_node("MatMul", ["q", "b"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["s"]),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(arrays[1])),
        helper.make_node("MatMul", ["s", "k"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "products", values[:1], values[1:], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="tests")
    made.metadata_props.add(key="what", value="for")
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(model(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_large_weights_are_read_apart_and_are_the_same(path: Path) -> None:
    source = read_model(path)
    assert set(source.weights) == {0, 3} and len(source.proto.SerializeToString()) < path.stat().st_size - 2 * LARGE
    apart, whole = open_model(path), open_model(path.read_bytes())
    assert apart.metadata == whole.metadata and apart.initializers.keys() == whole.initializers.keys()
    for name, array in whole.initializers.items():
        assert array.dtype == apart.initializers[name].dtype
        assert array.flags.writeable == apart.initializers[name].flags.writeable
        np.testing.assert_array_equal(array, apart.initializers[name])


def test_what_is_left_is_the_message_without_data(path: Path) -> None:
    data = path.read_bytes()
    found = without_weights(io.BytesIO(data), len(data))
    assert found is not None
    rest, expected = onnx.ModelProto(), onnx.ModelProto()
    rest.ParseFromString(found[0])
    expected.ParseFromString(data)
    for place, array in found[1].items():
        assert expected.graph.initializer[place].raw_data == array.tobytes()
        expected.graph.initializer[place].ClearField("raw_data")
    assert rest == expected


def test_repeated_fields_are_merged_as_protobuf_does(path: Path) -> None:
    data = path.read_bytes()
    found = without_weights(io.BytesIO(data + data), 2 * len(data))
    assert found is not None and set(found[1]) == {0, 3, 4, 7}
    twice = onnx.ModelProto()
    twice.ParseFromString(data + data)
    assert all(twice.graph.initializer[n].raw_data == array.tobytes() for n, array in found[1].items())


def test_damaged_files_are_refused_as_their_contents_are(path: Path) -> None:
    data, rng = bytearray(path.read_bytes()), random.Random(0)
    for _ in range(60):
        damaged = bytearray(data)
        if rng.random() < 0.5:
            del damaged[rng.randrange(len(data)) :]
        else:
            damaged[rng.randrange(200)] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        said = []
        for source in (path, bytes(damaged)):
            try:
                said.append(str(open_model(source).nodes == []))
            except ModelError as error:
                said.append(str(error).replace(f"'{path}'", "the given bytes"))
        assert said[0] == said[1]


def test_models_of_too_many_parts_are_left_to_protobuf(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "MOST_FIELDS", 5)
    assert not read_model(path).weights and len(open_model(path).initializers) == 4
