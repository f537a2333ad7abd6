"""Scripts as people write them for ONNX Runtime: each runs under both libraries, which differ in the import only."""

from __future__ import annotations

import importlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.datasets import get_example

import autotune

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.arange(20, dtype=np.float32).reshape(4, 5) / 10
Script = Callable[[Any, str, Path], Any]


@pytest.fixture(autouse=True)
def settings_left_behind() -> Iterator[None]:
    """What scripts set for the whole process ends with them."""
    logger = logging.getLogger("autotune")
    before = logger.level
    yield
    logger.setLevel(before)
    onnxruntime.set_default_logger_severity(2)


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


def load_and_predict(ort: Any, path: str, folder: Path) -> Any:
    """`plot_load_and_predict.py` of ONNX Runtime's own examples, with its own model."""
    session = ort.InferenceSession(get_example("sigmoid.onnx"), providers=ort.get_available_providers())
    first, result = session.get_inputs()[0], session.get_outputs()[0]
    x = np.random.default_rng(0).random((3, 4, 5)).astype(np.float32)
    return (first.name, first.shape, first.type, result.name, result.shape, result.type), session.run(
        [result.name], {first.name: x}
    )


def common_errors(ort: Any, path: str, folder: Path) -> Any:
    """`plot_common_errors.py`: what a run refuses, it refuses by an exception."""
    session = ort.InferenceSession(get_example("logreg_iris.onnx"), providers=ort.get_available_providers())
    x, name, outputs = np.array([[1.0, 2.0]] * 3, np.float32), session.get_inputs()[0].name, ["label"]
    refused = []
    for names, feeds in (
        (outputs, {name: x.astype(np.float64)}),
        (["misspelled"], {name: x}),
        (outputs, {"misspelled": x}),
        (outputs, {name: x[:1]}),
        (outputs, {name: x[0]}),
        (outputs, {}),
    ):
        with pytest.raises(Exception) as caught:
            session.run(names, feeds)
        refused.append(bool(str(caught.value)))
    return refused, session.run(None, {name: x})


def models_by_bytes(ort: Any, path: str, folder: Path) -> Any:
    return ort.InferenceSession(onnx.load(path).SerializeToString(), None, ["CPUExecutionProvider"]).run(
        ["y"], {"x": X}
    )


def backend(ort: Any, path: str, folder: Path) -> Any:
    """`plot_backend.py`."""
    backend = importlib.import_module("onnxruntime.backend" if ort is onnxruntime else "autotune.onnx_backend")
    prepared = [backend.prepare(path, "CPU"), backend.prepare(onnx.load(path), "CPU")]
    return backend.supports_device("CPU"), [rep.run([X]) for rep in prepared]


def settings_of_the_module(ort: Any, path: str, folder: Path) -> Any:
    ort.set_seed(0)
    ort.disable_telemetry_events()
    ort.set_default_logger_severity(3)
    ort.set_default_logger_verbosity(0)
    return [isinstance(text, str) and bool(text) for text in (ort.get_version_string(), ort.get_build_info())]


def options_of_a_run(ort: Any, path: str, folder: Path) -> Any:
    options = ort.RunOptions()
    options.log_severity_level, options.logid = 3, "a run"
    session = session_of(ort, path)
    found = session.run(["y"], {"x": X}, options)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z", "cpu")
    session.run_with_iobinding(binding, options)
    options.terminate = True
    with pytest.raises(Exception, match="terminate"):
        session.run(["y"], {"x": X}, options)
    with pytest.raises(Exception, match="terminate"):
        session.run_with_iobinding(binding, options)
    return found, binding.copy_outputs_to_cpu()


def bindings_used_again(ort: Any, path: str, folder: Path) -> Any:
    """One binding for batches of several sizes; what comes out of one run goes into the next."""
    session, found = session_of(ort, path), []
    binding = session.io_binding()
    for rows in (1, 3, 2):
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X[:rows].copy(), "cpu", 0))
        binding.bind_output("y", "cpu", 0)
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        found.append(binding.get_outputs()[0].numpy().copy())
    return found


def sessions_in_threads(ort: Any, path: str, folder: Path) -> Any:
    session = session_of(ort, path)
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda scale: session.run(["y"], {"x": X * np.float32(scale)})[0], range(8)))


def memory_of_a_session(ort: Any, path: str, folder: Path) -> Any:
    session = session_of(ort, path)
    wanted = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    same_in_more_words = ort.OrtMemoryInfo.create_v2(
        "Cpu", ort.OrtMemoryInfoDeviceType.CPU, 0, 0, ort.OrtDeviceMemoryType.DEFAULT, 0,
        ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
    )  # fmt: skip
    with pytest.raises(Exception, match=r"device|memory"):
        ort.OrtMemoryInfo("Abacus", ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    infos = [*session.get_input_memory_infos(), *session.get_output_memory_infos(), wanted, same_in_more_words]
    value = session.create_ortvalue_from_shape_and_type([3, 4], np.float32, "cpu")
    value.update_inplace(X)
    return value.numpy(), [
        (one.name, one.device_id, int(one.mem_type), int(one.allocator_type), int(one.device_mem_type),
         one.device_vendor_id)
        for one in infos
    ]  # fmt: skip


def providers_by_device(ort: Any, path: str, folder: Path) -> Any:
    (cpu,) = (one for one in ort.get_ep_devices() if one.device.type == ort.OrtHardwareDeviceType.CPU)
    options = ort.SessionOptions()
    options.add_provider_for_devices([cpu], {})
    chosen = ort.SessionOptions()
    chosen.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    answers = [ort.InferenceSession(path, one).run(["y"], {"x": X})[0] for one in (options, chosen)]
    used = [one.ep_name for one in session_of(ort, path).get_input_epdevices()]
    device = cpu.device
    return answers, used, cpu.ep_name, (device.vendor, device.vendor_id, device.device_id), dict(cpu.ep_options)


def tuning_by_the_session(ort: Any, path: str, folder: Path) -> Any:
    session = session_of(ort, path)
    found = session.get_tuning_results()
    session.set_tuning_results(found, error_on_invalid=True)
    session.release_captured_graph(1)
    with pytest.raises(Exception, match=r"(?i)option"):
        session.set_ep_dynamic_options({})
    return found


def loading_canceled(ort: Any, path: str, folder: Path) -> Any:
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(Exception, match=r"(?i)canceled"):
        session_of(ort, path, options)
    options.set_load_cancellation_flag(False)
    return session_of(ort, path, options).run(None, {"x": X})


def compiled_ahead(ort: Any, path: str, folder: Path) -> Any:
    options, flags = ort.SessionOptions(), ort.OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS
    options.add_free_dimension_override_by_name("batch", 3)
    file, parts = folder / f"{ort.__name__}.compiled.onnx", list[bytes]()
    ort.ModelCompiler(options, path, flags=flags).compile_to_file(str(file))
    with pytest.raises(Exception, match="exists"):
        ort.ModelCompiler(options, path, flags=flags).compile_to_file(str(file))
    ort.ModelCompiler(options, Path(path).read_bytes()).compile_to_stream(parts.append)
    streamed = folder / f"{ort.__name__}.streamed.onnx"
    streamed.write_bytes(b"".join(parts))
    return [session_of(ort, str(one)).run(None, {"x": X}) for one in (file, streamed)]


SCRIPTS: list[Script] = [
    classify, all_outputs, outputs_in_the_order_asked_for, threads_and_levels, bound_dimensions, signature, texts,
    devices, values_in_and_out, values_that_change, bound_arrays, bound_addresses, bound_values, answers_by_callback,
    profile_of_runs, load_and_predict, common_errors, models_by_bytes, backend, settings_of_the_module,
    options_of_a_run, bindings_used_again, sessions_in_threads, memory_of_a_session, providers_by_device,
    tuning_by_the_session, loading_canceled, compiled_ahead,
]  # fmt: skip


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        same(list(ours.values()), list(theirs.values()))
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)
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
