"""Scripts as people write them for ONNX Runtime: each runs under both libraries, which differ in the import only."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.arange(20, dtype=np.float32).reshape(4, 5) / 10
Script = Callable[[Any, str, Path], Any]


def model_file(folder: Path) -> str:
    """y = relu(x @ w), z = -y, with an open batch and all the texts a file can have."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["t"]),
            helper.make_node("Relu", ["t"], ["y"]),
            helper.make_node("Neg", ["y"], ["z"]),
        ],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 5]) for name in ("y", "z")],
        [numpy_helper.from_array(W, "w")],
        doc_string="of the graph",
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="tests", domain="com.example",
        doc_string="of the model", model_version=7,
    )  # fmt: skip
    helper.set_model_props(model, {"labels": "cat,dog"})
    path = folder / "dense.onnx"
    onnx.save(model, path)
    return str(path)


def session_of(ort: Any, path: str, options: Any = None) -> Any:
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def classify(ort: Any, path: str, folder: Path) -> Any:
    session = session_of(ort, path)
    name = session.get_inputs()[0].name
    return session.run([session.get_outputs()[0].name], {name: X})


def all_outputs(ort: Any, path: str, folder: Path) -> Any:
    return session_of(ort, path).run(None, {"x": X})


def outputs_in_the_order_asked_for(ort: Any, path: str, folder: Path) -> Any:
    return session_of(ort, path).run(["z", "y"], {"x": X})


def threads_and_levels(ort: Any, path: str, folder: Path) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    return session_of(ort, path, options).run(None, {"x": X})


def bound_dimensions(ort: Any, path: str, folder: Path) -> Any:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 3)
    options.add_free_dimension_override_by_name("sequence", 8)  # as scripts do, whatever the model has
    session = session_of(ort, path, options)
    return session.run(None, {"x": X}), session.get_inputs()[0].shape


def signature(ort: Any, path: str, folder: Path) -> Any:
    session = session_of(ort, path)
    return [(a.name, a.type, list(a.shape)) for a in (*session.get_inputs(), *session.get_outputs())]


def texts(ort: Any, path: str, folder: Path) -> Any:
    meta = session_of(ort, path).get_modelmeta()
    return (
        meta.producer_name, meta.graph_name, meta.domain, meta.description, meta.graph_description, meta.version,
        meta.custom_metadata_map,
    )  # fmt: skip


def devices(ort: Any, path: str, folder: Path) -> Any:
    found = ort.get_available_providers()
    return ort.get_device(), "CPUExecutionProvider" in found, session_of(ort, path).get_providers()


def values_in_and_out(ort: Any, path: str, folder: Path) -> Any:
    value = ort.OrtValue.ortvalue_from_numpy(X)
    y, z = session_of(ort, path).run_with_ort_values(None, {"x": value})
    about = (value.shape(), value.data_type(), value.element_type(), value.device_name(), value.is_tensor())
    return about, value.tensor_size_in_bytes(), y.numpy(), z.numpy()


def values_that_change(ort: Any, path: str, folder: Path) -> Any:
    value = ort.OrtValue.ortvalue_from_shape_and_type([3, 4], np.float32, "cpu", 0)
    value.update_inplace(X)
    session = session_of(ort, path)
    first = session.run_with_ort_values(["y"], {"x": value})[0].numpy().copy()
    value.update_inplace(-X)
    return first, session.run_with_ort_values(["y"], {"x": value})[0].numpy()


def bound_arrays(ort: Any, path: str, folder: Path) -> Any:
    session = session_of(ort, path)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu(), [value.shape() for value in binding.get_outputs()]


def bound_addresses(ort: Any, path: str, folder: Path) -> Any:
    session = session_of(ort, path)
    binding, y = session.io_binding(), np.empty((3, 5), np.float32)
    binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    session.run_with_iobinding(binding)
    return y


def bound_values(ort: Any, path: str, folder: Path) -> Any:
    session = session_of(ort, path)
    binding = session.io_binding()
    out = ort.OrtValue.ortvalue_from_numpy(np.zeros((3, 5), np.float32))
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_ortvalue_output("z", out)
    session.run_with_iobinding(binding)
    return out.numpy()


def answers_by_callback(ort: Any, path: str, folder: Path) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2  # ONNX Runtime needs a pool for this
    done, found = threading.Event(), []

    def callback(results: Any, user_data: Any, error: str) -> None:
        found.append((results, user_data, error))
        done.set()

    session_of(ort, path, options).run_async(["y"], {"x": X}, callback, "which run")
    assert done.wait(60)
    return found


def profile_of_runs(ort: Any, path: str, folder: Path) -> Any:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    session = session_of(ort, path, options)
    session.run(None, {"x": X})
    events = json.loads(Path(session.end_profiling()).read_text())
    return {"Node", "Session"} <= {e["cat"] for e in events}, all(e["dur"] >= 0 for e in events if e["ph"] == "X")


SCRIPTS: list[Script] = [
    classify, all_outputs, outputs_in_the_order_asked_for, threads_and_levels, bound_dimensions, signature, texts,
    devices, values_in_and_out, values_that_change, bound_arrays, bound_addresses, bound_values, answers_by_callback,
    profile_of_runs,
]  # fmt: skip


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            same(one, other)
    else:
        assert ours == theirs


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_script_for_onnxruntime_runs(script: Script, tmp_path: Path) -> None:
    path = model_file(tmp_path)
    libraries: tuple[ModuleType, ModuleType] = (autotune, onnxruntime)
    ours, theirs = (script(library, path, tmp_path) for library in libraries)
    same(ours, theirs)


def test_a_compiled_file_keeps_the_texts(tmp_path: Path) -> None:
    path = model_file(tmp_path)
    autotune.compile(path, "native -num-cores=1", False, shapes={"batch": [3]}).save(tmp_path / "dense.at")
    compiled = autotune.InferenceSession(tmp_path / "dense.at")
    assert texts(autotune, str(tmp_path / "dense.at"), tmp_path) == texts(onnxruntime, path, tmp_path)
    assert compiled.get_inputs()[0].shape == [3, 4]
