"""Sessions, the command line and the backend with shapes that the run decides."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.errors import InputError, ModelError, UnsupportedError
from autotune.onnx_backend import prepare, run_model, run_node
from tests.cli.cli_models import conv_model, invoke, save

TARGET = "native -num-cores=1"


def nonzero_model() -> onnx.ModelProto:
    """How often each place is not zero, and where: the second depends on data."""
    nodes = [
        helper.make_node("Abs", ["x"], ["magnitude"]),
        helper.make_node("NonZero", ["magnitude"], ["where"], name="find"),
        helper.make_node("Cast", ["where"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Neg", ["floats"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "nonzero",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [
            helper.make_tensor_value_info("magnitude", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, "count"]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_session_binds_the_batch_of_each_run() -> None:
    session = autotune.InferenceSession(conv_model("N").SerializeToString(), target=TARGET, database=False)
    assert [(arg.name, arg.type, arg.shape) for arg in session.get_inputs()] == [("x", "tensor(float)", ["N", 3, 8, 8])]
    assert session.get_outputs()[0].shape == ["N", 16, 8, 8]
    images = np.random.default_rng(0).standard_normal((3, 3, 8, 8)).astype(np.float32)
    (together,) = session.run(None, {"x": images})
    for n in range(3):
        (alone,) = session.run(["y"], {"x": images[n : n + 1]})
        np.testing.assert_allclose(alone[0], together[n], rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="no single program"):
        _ = session.program
    with pytest.raises(InputError, match="'x' must be"):
        session.run(None, {"x": images[:, :2]})


def test_host_nodes_and_segments_are_known(tmp_path: Path) -> None:
    session = autotune.InferenceSession(nonzero_model().SerializeToString(), target=TARGET, database=False)
    assert session.host_nodes == ("node 'find' (NonZero)",)
    assert session.segments == 2
    x = np.asarray([[0, 1, 0], [2, 0, -3]], np.float32)
    magnitude, y = session.run(None, {"x": x})
    np.testing.assert_array_equal(magnitude, abs(x))
    np.testing.assert_array_equal(y, [[0, -1, -1], [-1, 0, -2]])
    assert session.segments == 1  # what follows what is found takes little time, and runs at once
    assert "node 'find' (NonZero)" in session.host_nodes and len(session.host_nodes) > 1
    rep = prepare(nonzero_model())
    np.testing.assert_array_equal(rep.run([x])[1], y)
    assert (rep.host_nodes, rep.segments) == (session.host_nodes, 1)
    assert prepare(conv_model()).host_nodes == ()


def test_one_program_is_wanted_for_a_file_and_for_tuning() -> None:
    with pytest.raises(UnsupportedError, match="'find' .NonZero. runs on the host"):
        autotune.compile(nonzero_model().SerializeToString(), TARGET, False)
    with pytest.raises(ModelError, match="--shape"):
        autotune.compile(conv_model("N").SerializeToString(), TARGET, False)


def test_the_command_line_says_what_runs_where(tmp_path: Path) -> None:
    path = save(nonzero_model(), tmp_path / "m.onnx")
    found = json.loads(invoke("check", path, "--target", TARGET, "--json").stdout)
    assert (found["segments"], found["segments_open"], found["host_nodes"]) == (2, True, ["node 'find' (NonZero)"])
    assert "'find'" in invoke("check", path, "--target", TARGET).stdout
    plain = json.loads(invoke("check", save(conv_model(), tmp_path / "c.onnx"), "--json").stdout)
    assert (plain["segments"], plain["segments_open"], plain["host_nodes"]) == (1, False, [])
    ran = invoke("run", path, "--random", "1", "--target", TARGET, "--untuned", "--json")
    assert json.loads(ran.stdout)["y"]["shape"] == [2, 6]


def test_the_backend_runs_single_nodes() -> None:
    x = np.asarray([[1, 0], [0, 2]], np.float32)
    (y,) = run_node(helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0), [x, np.asarray([1])])
    np.testing.assert_array_equal(y, [1, 2])
    (y,) = run_node(helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=0), [x, x[1]], opset_version=6)
    np.testing.assert_array_equal(y, x + x[1][:, None])
    np.testing.assert_array_equal(run_model(nonzero_model(), [np.zeros((2, 3), np.float32)])[1], np.empty((2, 0)))


def test_a_symbol_binds_every_dimension_of_its_name() -> None:
    data = conv_model("N").SerializeToString()
    assert autotune.compile(data, TARGET, False, shapes={"N": [2]}).inputs[0].shape == (2, 3, 8, 8)
    with pytest.raises(ModelError, match="no input 'M'; inputs: x; open: N"):
        autotune.compile(data, TARGET, False, shapes={"M": [2]})
    with pytest.raises(ModelError, match="'N' is one dimension, and 2 are given"):
        autotune.compile(data, TARGET, False, shapes={"N": [2, 3]})
