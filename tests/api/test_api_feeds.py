"""What a session takes for an input, as ONNX Runtime does, and what it says of the rest; shapes fixed and open."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.errors import InputError, ModelError

TARGET = "native -num-cores=1"
X = np.asarray([[1, -2, 3], [-4, 5, -6]], np.float32)
WANTED = np.maximum(X, 0)


def relu_and_sum(batch: int | str) -> bytes:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Add", ["i", "i"], ["twice"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3]),
        helper.make_tensor_value_info("i", TensorProto.UINT8, [2]),
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("y", "twice")]
    graph = helper.make_graph(nodes, "feeds", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.fixture(scope="module", params=[2, "N"], ids=["fixed", "open"])
def session(request: pytest.FixtureRequest) -> autotune.InferenceSession:
    return autotune.InferenceSession(relu_and_sum(request.param), target=TARGET, database=False)


def read_only() -> Any:
    array = X.copy()
    array.flags.writeable = False
    return array


GOOD: dict[str, Any] = {
    "plain": X,
    "fortran": np.asfortranarray(X),
    "strided": np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": X[::-1][::-1],
    "read_only": read_only(),
    "unaligned": np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3),
    "list": X.tolist(),
    "list_of_integers": X.astype(int).tolist(),
    "tuple_of_arrays": tuple(X),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_taken(session: autotune.InferenceSession, name: str) -> None:
    y, twice = session.run(None, {"x": GOOD[name], "i": [1, 100]})
    np.testing.assert_array_equal(y, WANTED)
    assert twice.dtype == np.uint8
    assert twice.tolist() == [2, 200]


BAD: dict[str, tuple[Any, str]] = {
    "f64": ({"x": X.astype(np.float64)}, "'x' must be f32.*got f(loat)?64"),
    "big_endian": ({"x": X.astype(">f4")}, "'x' must be f32.*got >f4"),
    "complex": ({"x": X.astype(complex)}, "'x' must be f32.*got complex128"),
    "object": ({"x": None}, "'x' must be f32.*got object"),
    "text": ({"x": "abc"}, "'x' must be f32.*got <U3"),
    "rank": ({"x": X[0]}, "'x' must be f32"),
    "extent": ({"x": X[:, :2]}, "'x' must be f32"),
    "ragged": ({"x": [[1, 2], [3]]}, "'x' is no array"),
    "out_of_range": ({"i": [1, 256]}, "'i' must be u8"),
    "fraction": ({"i": [1, 0.5]}, "'i' must be u8"),
    "extra": ({"z": X}, "the model takes x: .*got x, i, z"),
    "number_as_name": ({0: X}, "the model takes x: .*got x, i, 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(session: autotune.InferenceSession, name: str) -> None:
    change, text = BAD[name]
    with pytest.raises(InputError, match=text) as caught:
        session.run(None, {"x": X, "i": np.asarray([1, 2], np.uint8), **change})
    assert "\n" not in str(caught.value)


def test_names_of_outputs(session: autotune.InferenceSession) -> None:
    feeds = {"x": X, "i": [0, 1]}
    assert [a.shape for a in session.run(["twice", "y", "twice"], feeds)] == [(2,), (2, 3), (2,)]
    assert len(session.run([], feeds)) == 2
    for names, text in ((["q"], "no output named q"), ([3], "no output named 3"), ("y", "be a list"), (3, "be a list")):
        with pytest.raises(InputError, match=text):
            session.run(names, feeds)  # type: ignore[arg-type]
    for wrong in ([X], None, X):
        with pytest.raises(InputError, match="must be a mapping"):
            session.run(None, wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the model takes x"):
        session.run(None, {"x": X})


OUTPUT: dict[str, Any] = {
    "list": [[0.0] * 3] * 2,
    "dtype": np.empty((2, 3), np.float64),
    "shape": np.empty((3, 2), np.float32),
    "strided": np.empty((3, 2), np.float32).T,
    "read_only": read_only(),
}


@pytest.mark.parametrize("name", OUTPUT)
def test_arrays_that_no_output_fits(session: autotune.InferenceSession, name: str) -> None:
    twice = np.zeros(2, np.uint8)
    with pytest.raises(InputError, match=r"'y' must be f32\[2, 3\], C-contiguous and writeable"):
        session.run_into({"twice": twice, "y": OUTPUT[name]}, {"x": X, "i": [1, 2]})
    assert not twice.any()
    with pytest.raises(InputError, match="the outputs must be a mapping"):
        session.run_into([twice], {"x": X, "i": [1, 2]})  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [onnx.load_from_string, bytearray, memoryview])
def test_a_model_in_memory(form: Any) -> None:
    session = autotune.InferenceSession(
        form(relu_and_sum(2)), None, ["CPUExecutionProvider"], [{}], target=TARGET, database=False
    )
    np.testing.assert_array_equal(session.run(["y"], {"x": X, "i": [1, 2]})[0], WANTED)
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    assert session.get_overridable_initializers() == []


@pytest.mark.parametrize("wrong", [None, 3, io.BytesIO(b"")])
def test_what_is_no_model(wrong: Any) -> None:
    with pytest.raises(ModelError, match="a model is a path, bytes or an onnx.ModelProto, not "):
        autotune.InferenceSession(wrong)


def test_a_session_is_not_copied(session: autotune.InferenceSession) -> None:
    for copy_of in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a session cannot be pickled or copied"):
            copy_of(session)


def test_arrays_of_the_caller_are_written_in_that_run_only(session: autotune.InferenceSession) -> None:
    feeds = {"x": X, "i": np.asarray([1, 2], np.uint8)}
    mine = np.zeros((2, 3), np.float32)
    session.run_into({"y": mine}, feeds)
    np.testing.assert_array_equal(mine, WANTED)
    (first, _), (second, _) = session.run(None, {**feeds, "x": -X}), session.run(None, feeds)
    np.testing.assert_array_equal(mine, WANTED)
    np.testing.assert_array_equal(first, np.maximum(-X, 0))
    np.testing.assert_array_equal(second, WANTED)
    assert not np.shares_memory(first, second)


def test_a_run_that_was_refused_leaves_nothing_behind() -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"])
    values = [
        helper.make_tensor_value_info(name, kind, [3])
        for name, kind in (("x", TensorProto.FLOAT), ("i", TensorProto.INT64), ("y", TensorProto.FLOAT))
    ]
    graph = helper.make_graph([node], "gather", values[:2], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = autotune.InferenceSession(model.SerializeToString(), target=TARGET, database=False)
    feeds, mine = {"x": X[0], "i": np.asarray([2, 0, -1])}, np.zeros(3, np.float32)
    with pytest.raises(InputError):
        session.run_into({"y": mine}, {**feeds, "i": np.asarray([0, 9, 0])})
    mine[:] = 7
    np.testing.assert_array_equal(session.run(None, feeds)[0], [3, 1, 3])
    assert (mine == 7).all()
