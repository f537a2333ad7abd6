"""The commands on models whose shapes only a run knows: profile, tune, tasks, bench, compile --fix, check."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.errors import ModelError
from tests.api.test_api_open_shapes import nonzero_model
from tests.cli.cli_models import conv_model, invoke, save

TARGET = ("--target", "native -num-cores=1")
SHAPE = np.asarray([4, 16])


def reshape_model() -> onnx.ModelProto:
    """softmax(relu(reshape(x·x, shape))): the value of an input decides a shape."""
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["product"]),
        helper.make_node("Reshape", ["product", "shape"], ["reshaped"]),
        helper.make_node("Relu", ["reshaped"], ["positive"]),
        helper.make_node("Softmax", ["positive"], ["y"], axis=-1),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 8]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    graph = helper.make_graph(nodes, "reshape", inputs, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("open")
    save(conv_model("N"), found / "batch.onnx")
    save(reshape_model(), found / "reshape.onnx")
    save(nonzero_model(), found / "nonzero.onnx")
    np.save(found / "shape.npy", SHAPE)
    np.save(found / "images.npy", np.zeros((3, 3, 8, 8), np.float32))
    return found


def test_a_profile_shows_all_programs_and_host_functions_of_a_run(folder: Path) -> None:
    done = invoke("profile", folder / "nonzero.onnx", *TARGET, "--untuned", "--rounds", "2", "--json")
    found = json.loads(done.stdout)
    assert found["programs"] == 1  # what follows what is found takes little time, and runs on the host
    assert found["hosts"][0]["node"] == "node 'find' (NonZero)" and len(found["hosts"]) > 1
    assert [kernel["kernel"].split(" data=")[0] for kernel in found["kernels"]] == ["abs"]
    starts = [found["kernels"][0]["start"], *(host["start"] for host in found["hosts"])]
    assert starts[0] == 0.0 and starts == sorted(starts)
    assert found["seconds"] == pytest.approx(sum(part["seconds"] for part in found["kernels"] + found["hosts"]))
    shown = invoke("profile", folder / "nonzero.onnx", *TARGET, "--untuned", "--rounds", "2").stdout
    assert "NumPy on the host" in shown


def test_a_profile_with_given_inputs(folder: Path) -> None:
    images = f"x={folder / 'images.npy'}"
    found = json.loads(invoke("profile", folder / "batch.onnx", *TARGET, "--input", images, "--json").stdout)
    assert found["programs"] == 1 and any("3,16,8,8" in kernel["kernel"] for kernel in found["kernels"])
    shape = f"shape={folder / 'shape.npy'}"
    found = json.loads(invoke("profile", folder / "reshape.onnx", *TARGET, "--input", shape, "--json").stdout)
    assert sorted(kernel["kernel"].split()[0] for kernel in found["kernels"]) == ["matmul", "relu", "softmax"]


@pytest.mark.parametrize("command", ["profile", "tasks"])
def test_what_is_missing_is_said(folder: Path, command: str) -> None:
    done = invoke(command, folder / "batch.onnx", *TARGET)
    assert done.exit_code == 1 and "--shape x=1,3,8,8" in done.stderr and "--input x=" in done.stderr
    done = invoke(command, folder / "reshape.onnx", *TARGET)
    assert done.exit_code == 1 and "drew the values of x, shape" in done.stderr
    done = invoke(command, folder / "reshape.onnx", *TARGET, "--input", f"z={folder / 'shape.npy'}")
    assert done.exit_code == 1 and "no input 'z'" in done.stderr


def test_tasks_are_those_of_all_programs(folder: Path) -> None:
    shape = f"shape={folder / 'shape.npy'}"
    found = json.loads(invoke("tasks", folder / "reshape.onnx", *TARGET, "--input", shape, "--json").stdout)
    assert sorted(task["operator"].split()[0] for task in found["tasks"]) == ["matmul", "relu", "softmax"]


def test_tuning_gives_a_verdict_per_program_that_later_runs_heed(tmp_path: Path) -> None:
    report = autotune.tune(
        reshape_model().SerializeToString(),
        "native -num-cores=1",
        tmp_path / "db.sqlite",
        trials=4,
        strategy="random",
        inputs={"shape": SHAPE},
    )
    assert sorted(task.task.name.split()[0] for task in report.search.tasks) == ["matmul", "relu", "softmax"]
    assert len(report.programs) == 2 and report.model is not None
    assert report.model.tuned_seconds == pytest.approx(sum(one.tuned_seconds for one in report.programs))
    with pytest.raises(ModelError, match="no input 'z'"):
        autotune.tune(reshape_model().SerializeToString(), trials=1, inputs={"shape": SHAPE, "z": SHAPE})


def test_bench_runs_what_a_session_runs(folder: Path) -> None:
    shape = f"shape={folder / 'shape.npy'}"
    done = invoke("bench", folder / "reshape.onnx", *TARGET, "--input", shape, "--against", "none", "--rounds", "1",
                  "--json")  # fmt: skip
    found = json.loads(done.stdout)
    assert found["flops"] > 2 * 8**3  # the product, and the program behind it
    assert found["coverage"] == 0.0


def test_a_fixed_input_makes_one_program(folder: Path, tmp_path: Path) -> None:
    out, x = tmp_path / "m.at", np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    done = invoke("compile", folder / "reshape.onnx", "-o", out, *TARGET)
    assert done.exit_code == 1 and "--fix NAME=FILE.npy" in done.stderr
    fixed = ("--fix", f"shape={folder / 'shape.npy'}")
    done = invoke("compile", folder / "reshape.onnx", "-o", out, *TARGET, *fixed)
    assert done.exit_code == 0 and "--input shape=" in done.stdout  # the command that tunes it
    session = autotune.InferenceSession(out)
    assert [arg.name for arg in session.get_inputs()] == ["x"]
    live = autotune.InferenceSession(reshape_model().SerializeToString(), target=TARGET[1], database=False)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], live.run(None, {"x": x, "shape": SHAPE})[0], rtol=1e-6)
    data = reshape_model().SerializeToString()
    with pytest.raises(ModelError, match="input 'shape' is i64, and the value to fix it to float64"):
        autotune.compile(data, TARGET[1], False, fixed={"shape": np.asarray([4.0, 16.0])})
    with pytest.raises(ModelError, match="contradicts"):
        autotune.compile(data, TARGET[1], False, fixed={"x": np.zeros((8, 4), np.float32)})
    with pytest.raises(ModelError, match="there is no input 'z'"):
        autotune.compile(data, TARGET[1], False, fixed={"z": SHAPE})


def test_check_takes_open_dimensions(folder: Path) -> None:
    found = json.loads(invoke("check", folder / "batch.onnx", *TARGET, "--json").stdout)
    assert found["inputs"] == {"x": "f32[N, 3, 8, 8]"} and found["segments_open"] and found["tasks"] == 0
    assert "--shape x=1,3,8,8" in invoke("check", folder / "batch.onnx", *TARGET).stdout


def test_passes_can_be_left_out_and_graphs_dumped_wherever_a_model_is_compiled(folder: Path, tmp_path: Path) -> None:
    shape = f"shape={folder / 'shape.npy'}"
    done = invoke("run", folder / "reshape.onnx", *TARGET, "--input", shape, "--random", "0", "--dump-graph",
                  tmp_path / "both")  # fmt: skip
    assert done.exit_code == 0
    both = {path.name for path in (tmp_path / "both").iterdir()}
    second = {path.name for path in (tmp_path / "both" / "program-2").iterdir()}
    assert "00-imported.txt" in both and "program-2" in both and any("sink-reshapes.dot" in name for name in second)
    out = ("-o", tmp_path / "m.at", *TARGET, "--fix", shape, "--dump-graph", tmp_path / "less")
    assert invoke("compile", folder / "reshape.onnx", *out, "--skip-pass", "sink-reshapes").exit_code == 0
    assert not any("sink-reshapes" in path.name for path in (tmp_path / "less").iterdir())
    done = invoke("compile", folder / "reshape.onnx", *out, "--skip-pass", "none-such")
    assert done.exit_code == 1 and "there is no graph pass 'none-such'" in done.stderr


def test_check_names_what_no_shape_helps_while_shapes_are_open(tmp_path: Path) -> None:
    model = conv_model("N")
    model.graph.node[0].name = "first"
    model.graph.node[0].attribute.append(helper.make_attribute("auto_bad", "VALID"))
    path = save(model, tmp_path / "odd.onnx")
    done = invoke("check", path)
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr == "error: node 'first' (Conv): Conv has no attribute 'auto_bad' in opset 17\n"
