"""More scripts for ONNX Runtime, under both libraries: sparse tensors, sequences as values, errors, model packages."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.errors import InputError, ModelError, UnsupportedError
from tests.api.test_api_onnxruntime_scripts import X, model_file, same

CPU = autotune.OrtDevice.make("cpu", 0)
VALUES = np.array([1.5, -2, 3], np.float32)


def made_model() -> bytes:
    """A sequence of x and -x, a map of labels, and -x."""
    nodes = [
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("SequenceConstruct", ["x", "y"], ["s"]),
        helper.make_node("ZipMap", ["x"], ["m"], domain="ai.onnx.ml", classlabels_int64s=[3, 5, 7, 9]),
    ]
    floats = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    labels = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, floats))
    outputs = [
        helper.make_value_info("s", helper.make_sequence_type_proto(floats)),
        helper.make_value_info("m", labels),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4]),
    ]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


def coordinates(ort: Any, folder: Path) -> Any:
    device, found = ort.OrtDevice.make("cpu", 0), []
    for indices in (np.array([0, 4, 8]), np.array([[0, 0], [1, 1], [2, 2]]), np.array([0, 0, 1, 1, 2, 2], np.int32)):
        sparse = ort.SparseTensor.sparse_coo_from_numpy([3, 3], VALUES, indices, device)
        value = ort.OrtValue.ort_value_from_sparse_tensor(sparse)
        again = value.as_sparse_tensor()
        about = (again.data_type(), again.dense_shape(), again.device_name(), again.format().name)
        kind = (value.is_sparse_tensor(), value.is_tensor(), value.shape(), value.element_type(), value.data_type())
        with pytest.raises(Exception, match="(?i)tensor"):
            value.numpy()
        with pytest.raises(Exception, match="."):
            again.as_csrc_view()
        found.append((about, kind, again.values(), again.as_coo_view().indices().reshape(-1)))
    return found


def compressed_rows(ort: Any, folder: Path) -> Any:
    device = ort.OrtDevice.make("cpu", 0)
    sparse = ort.SparseTensor.sparse_csr_from_numpy(
        np.array([3, 4]), VALUES, np.array([1, 0, 3]), np.array([0, 1, 1, 3]), device
    )
    view = sparse.as_csrc_view()
    with pytest.raises(Exception, match="."):
        sparse.as_coo_view()
    with pytest.raises(Exception, match="."):
        ort.OrtValue.ortvalue_from_numpy(VALUES).as_sparse_tensor()
    return sparse.format().name, list(sparse.dense_shape()), sparse.values(), view.inner(), view.outer()


def places_that_do_not_fit(ort: Any, folder: Path) -> Any:
    device, tensor, refused = ort.OrtDevice.make("cpu", 0), ort.SparseTensor, []
    attempts: list[Callable[[], object]] = [
        lambda: tensor.sparse_coo_from_numpy([3, 3], VALUES, np.array([0]), device),
        lambda: tensor.sparse_csr_from_numpy([3, 3], VALUES, np.array([0, 1, 2]), np.array([0, 3]), device),
        lambda: tensor.sparse_csr_from_numpy([9], VALUES, np.array([0, 1, 2]), np.array([0, 3]), device),
        lambda: tensor.sparse_coo_from_numpy([3, 3], VALUES, np.array([0, 4, 8]), device).to_cuda(device),
    ]
    for make in attempts:
        with pytest.raises(Exception) as caught:
            make()
        refused.append(bool(str(caught.value)))
    return refused


def sequences_and_maps_as_values(ort: Any, folder: Path) -> Any:
    session = ort.InferenceSession(made_model(), providers=["CPUExecutionProvider"])
    found = session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(X)})
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X))
    for name in ("s", "m", "y"):
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    kinds = [(v.is_tensor(), v.is_tensor_sequence(), v.has_value(), v.data_type()) for v in found]
    with pytest.raises(Exception, match="."):
        found[0].numpy()
    return kinds, found[0].element_type(), found[2].numpy(), binding.copy_outputs_to_cpu(), session.run(["s"], {"x": X})


def errors_by_class(ort: Any, folder: Path) -> Any:
    state = importlib.import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state")
    session = ort.InferenceSession(model_file(folder), providers=["CPUExecutionProvider"])
    caught = []
    for names, feeds in ((["y"], {"x": X.astype(np.float64)}), (["misspelled"], {"x": X}), (["y"], {"x": X[0]})):
        try:
            session.run(names, feeds)
        except state.InvalidArgument as error:
            caught.append(bool(str(error)))
    try:
        session.run(["y"], {})
    except ValueError as error:
        caught.append("x" in str(error))
    for wanted in (state.NoSuchFile, ort.capi.onnxruntime_pybind11_state.NoSuchFile):
        try:
            ort.InferenceSession(str(folder / "missing.onnx"))
        except wanted as error:
            caught.append("missing.onnx" in str(error))
    return caught


def memory_by_arena(ort: Any, folder: Path) -> Any:
    wanted = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    settings = [ort.OrtArenaCfg({"max_mem": 1 << 30}), ort.OrtArenaCfg(0, -1, 1 << 20, 7), ort.OrtArenaCfg({})]
    with pytest.raises(Exception, match="max_mom"):
        ort.OrtArenaCfg({"max_mom": 1})
    ort.create_and_register_allocator_v2("CPUExecutionProvider", wanted, {}, settings[0])
    value = ort.OrtValue.ortvalue_from_shape_and_type([3], np.float32, memory_info=wanted)
    value.update_inplace(data=VALUES)
    return value.numpy(), [
        (one.max_mem, one.arena_extend_strategy, one.initial_chunk_size_bytes, one.max_dead_bytes_per_chunk,
         one.initial_growth_chunk_size_bytes, one.max_power_of_two_extend_bytes)
        for one in settings
    ]  # fmt: skip


def module_in_other_words(ort: Any, folder: Path) -> Any:
    info = ort.OrtExternalInitializerInfo("weights.bin", 64, 128)
    value = ort.OrtValue.ortvalue_from_numpy(VALUES, "cpu", vendor_id=ort.OrtDeviceVendorId.NONE)
    session = ort.InferenceSession(model_file(folder), disabled_optimizers=["ConstantFolding"])
    return (info.filepath, info.file_offset, info.byte_size), value.numpy(), session.run(["y"], {"x": X}), [
        ort.has_collective_ops(), ort.cuda_version, bool(ort.package_name)
    ]  # fmt: skip


def package(folder: Path, **more: object) -> Path:
    """One component with a model for two devices, the one for the CPU in a folder of another name."""
    root = folder / "package"
    (root / "plain").mkdir(parents=True, exist_ok=True)
    (root / "gpu").mkdir(exist_ok=True)
    (root / "plain" / "dense.onnx").write_bytes(Path(model_file(folder)).read_bytes())
    settings = {"session.intra_op_num_threads": "1"}
    inline = {"ort": {"model_file": "dense.onnx", "session_options": settings}, "other": {"what": 1}}
    cpu = {"ep": "CPUExecutionProvider", "device": "cpu", "variant_directory": "plain", "executor_info": inline}
    variants = {"gpu": {"ep": "CUDAExecutionProvider", "device": "gpu"}, "cpu": cpu}
    manifest = {"schema_version": "1.3", "package_name": "tests", "components": {"dense": {"variants": variants}}}
    (root / "manifest.json").write_text(json.dumps({**manifest, **more}))
    return root


def packages(ort: Any, folder: Path) -> Any:
    root = package(folder)
    context, options = ort.ModelPackageContext(str(root)), ort.ModelPackageOptions(ort.SessionOptions())
    chosen = context.select_component("dense", options)
    session = chosen.create_session()
    with pytest.raises(Exception, match="."):
        context.select_component("missing", options)
    with pytest.raises(Exception, match="."):
        context.resolve_string_ref("../elsewhere")
    with pytest.raises(Exception, match="."):
        context.resolve_string_ref("nothing", must_exist=True)
    return (
        context.get_schema_version(), context.get_component_count(), context.get_component_names(),
        context.get_variant_count("dense"), context.get_variant_names("dense"),
        [context.get_variant_ep_name("dense", name) for name in ("gpu", "cpu")],
        chosen.get_selected_variant_name(), chosen.get_selected_variant_folder_path(),
        context.resolve_string_ref("plain/dense.onnx", must_exist=True), context.resolve_string_ref("x", str(root)),
        session.get_session_options().intra_op_num_threads, session.run(["y"], {"x": X}),
        chosen.create_session(ort.SessionOptions()).run(["z"], {"x": X}),
    )  # fmt: skip


def packages_in_parts(ort: Any, folder: Path) -> Any:
    """A component and what it says for ONNX Runtime in files of their own, and a model among the shared files."""
    root, digest = package(folder, components={"far": "parts/far.json", "near": "parts"}), "0f" * 32
    shared = root / "shared_assets" / f"sha256-{digest}" / "deep"
    shared.mkdir(parents=True, exist_ok=True)
    (root / "parts" / "cpu").mkdir(parents=True, exist_ok=True)
    (shared / "dense.onnx").write_bytes((root / "plain" / "dense.onnx").read_bytes())
    (root / "parts" / "cpu" / "ort.json").write_text(json.dumps({"model_file": f"sha256:{digest}/deep/dense.onnx"}))
    body = {"variants": {"cpu": {"ep": "CPUExecutionProvider", "executor_info": {"ort": "ort.json"}}}}
    for name in ("far.json", "component.json"):
        (root / "parts" / name).write_text(json.dumps(body))
    context = ort.ModelPackageContext(str(root))
    options = ort.ModelPackageOptions(ort.SessionOptions())
    return [
        context.select_component(name, options).create_session().run(["y"], {"x": X}) for name in ("far", "near")
    ], context.resolve_string_ref(f"sha256:{digest}")


SCRIPTS: list[Callable[[Any, Path], Any]] = [
    coordinates, compressed_rows, places_that_do_not_fit, sequences_and_maps_as_values, errors_by_class,
    memory_by_arena, module_in_other_words, packages, packages_in_parts,
]  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
@pytest.mark.filterwarnings("ignore:.*has no effect in autotune")
def test_a_script_for_onnxruntime_runs(script: Callable[[Any, Path], Any], tmp_path: Path) -> None:
    libraries: tuple[ModuleType, ModuleType] = (autotune, onnxruntime)
    ours, theirs = (script(library, tmp_path) for library in libraries)
    same(ours, theirs)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"schema_version": "2.0"}, "schema_version is 2.0, and 1.x can be read"),
        ({"schema_version": None}, "schema_version is None"),
        ({"surprise": 1}, "unknown 'surprise'"),
        ({"layout": "scattered"}, "layout is 'portable' or 'installed', not 'scattered'"),
        ({"components": ["dense"]}, "components must be an object, not list"),
        ({"components": {"dense": "nowhere"}}, "there is no 'nowhere'"),
        ({"components": {"dense": "../package/plain"}}, "leads out of the package"),
        ({"components": {"dense": "plain"}}, "component.json cannot be read"),
        ({"components": {"dense": {"variants": {"cpu": {"executor_info": 3}}}}}, "must be an object, not int"),
        ({"components": {"dense": {"variants": {"cpu": {"ep": 3}}}}}, "ep must be a text, not 3"),
        ({"components": {"dense": {"variants": {"cpu": {"executor_info": {"ort": {"session_options": {
            "session.optimized_model_filepath": "/tmp/x"}}}}}}}}, "would have files written"),
        ({"components": {"dense": {"variants": {"cpu": {"executor_info": {"ort": {
            "model_file": "/etc/passwd"}}}}}}}, "leads out of the package"),
        ({"components": {"dense": {"variants": {"cpu": {"executor_info": {"ort": {
            "model_file": f"sha256:{'ab' * 32}/x"}}}}}}}, "there are no shared files"),
    ],
)  # fmt: skip
def test_a_damaged_package_is_refused(more: dict[str, object], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=complaint):
        autotune.ModelPackageContext(package(tmp_path, **more))


def test_no_link_leads_out_of_a_portable_package(tmp_path: Path) -> None:
    root = package(tmp_path)
    (root / "plain" / "dense.onnx").unlink()
    (root / "plain" / "dense.onnx").symlink_to(tmp_path / "dense.onnx")
    with pytest.raises(ModelError, match="leads out of the package"):
        autotune.ModelPackageContext(root)
    package(tmp_path, layout="installed")
    autotune.ModelPackageContext(root)


def test_what_no_package_is_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is no model package: .*manifest.json cannot be read"):
        autotune.ModelPackageContext(tmp_path)
    with pytest.raises(InputError, match="a model package is a folder, not 3"):
        autotune.ModelPackageContext(3)  # type: ignore[arg-type]


def test_a_component_for_other_devices_alone_is_refused(tmp_path: Path) -> None:
    gpu = {"variants": {"gpu": {"ep": "CUDAExecutionProvider"}, "any": {}}}
    context = autotune.ModelPackageContext(package(tmp_path, components={"dense": gpu}))
    with pytest.raises(UnsupportedError, match="gpu for CUDAExecutionProvider, any for none"):
        context.select_component("dense", autotune.ModelPackageOptions(autotune.SessionOptions()))
    with pytest.raises(InputError, match="no variant 'cpu'; component 'dense' has gpu, any"):
        context.get_variant_ep_name("dense", "cpu")


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda one, two: autotune.copy_tensors([one], []), "there are 1 tensors to copy into 0"),
        (lambda one, two: autotune.copy_tensors([one], [two]), r"tensor\(float\) \[3\]> does not fit .*\[2\]"),
        (lambda one, two: autotune.copy_tensors([one], [one], stream=1), "runs on the CPU, which has none"),
        (lambda one, two: one.update_inplace([1.0]), "list does not fit"),
        (lambda one, two: autotune.OrtValue([one.numpy()]).numpy(), "is no tensor: its `content` has"),
        (lambda one, two: autotune.OrtValue.ortvalue_from_shape_and_type([-1]), r"of the shape \[-1\]"),
        (lambda one, two: autotune.OrtValue.ort_value_from_sparse_tensor(one), "a SparseTensor is wanted"),
        (lambda one, two: autotune.SparseTensor.sparse_coo_from_numpy([2], one.numpy(), np.array([0, 1, 9]), CPU),
         "name an element outside"),
        (lambda one, two: autotune.SparseTensor.sparse_coo_from_numpy([2], np.array(["a"]), np.array([0]), CPU),
         "a NumPy array of numbers"),
        (lambda one, two: autotune.SparseTensor.sparse_coo_from_numpy([2], one.numpy(), np.array([0.5]), CPU),
         "whole numbers, not float64"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(ask: Callable[[Any, Any], object], complaint: str) -> None:
    one, two = (autotune.OrtValue.ortvalue_from_numpy(array) for array in (VALUES, VALUES[:2].copy()))
    with pytest.raises(InputError, match=complaint):
        ask(one, two)


def test_tensors_are_copied() -> None:
    """ONNX Runtime has no way to copy from the CPU to the CPU."""
    source, other = (autotune.OrtValue.ortvalue_from_numpy(array) for array in (VALUES, np.zeros(3, np.float32)))
    autotune.copy_tensors([source], [other])
    np.testing.assert_array_equal(other.numpy(), VALUES)


def test_a_binding_by_devices(tmp_path: Path) -> None:
    """ONNX Runtime's inner binding takes its inner session, which is not for scripts; the rest is alike."""
    session = autotune.InferenceSession(model_file(tmp_path))
    binding, z = autotune.SessionIOBinding(session), np.zeros((3, 5), np.float32)
    binding.bind_input("x", CPU, np.float32, list(X.shape), X.ctypes.data)
    binding.bind_output("y", CPU)
    binding.bind_output("z", CPU, np.float32, [3, 5], z.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(z, -binding.get_outputs()[0].numpy())
    with pytest.raises(InputError, match=r"'y' is bound to OrtDevice.make"):
        binding.bind_output("y", "cpu")


def test_printed_versions(capsys: pytest.CaptureFixture[str]) -> None:
    autotune.print_debug_info()
    assert f"autotune version: {autotune.__version__}\n" in capsys.readouterr().out
