"""Names of ONNX Runtime that mean nothing on one CPU, or that would change a compiled program: they warn, or refuse."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.api import session_options
from autotune.errors import InputError, UnsupportedError


def relu(batch: int | str = 2) -> bytes:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    content: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    return content


@pytest.fixture(scope="module")
def session() -> autotune.InferenceSession:
    return autotune.InferenceSession(relu(), target="native -num-cores=1", database=False)


@pytest.mark.parametrize(
    ("what", "ask"),
    [
        ("create_and_register_allocator", lambda _: autotune.create_and_register_allocator(
            autotune.OrtMemoryInfo("Cpu", autotune.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, autotune.OrtMemType.DEFAULT)
        )),
        ("set_global_thread_pool_sizes", lambda _: autotune.set_global_thread_pool_sizes(2, 1)),
        ("the dynamic option 'ep.dynamic.workload_type'",
         lambda session: session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})),
        ("set_tuning_results", lambda session: session.set_tuning_results([{"ep": "ROCM"}])),
        ("the policy PREFER_GPU", lambda _: autotune.SessionOptions().set_provider_selection_policy(
            autotune.OrtExecutionProviderDevicePolicy.PREFER_GPU
        )),
        ("set_provider_selection_policy_delegate",
         lambda _: autotune.SessionOptions().set_provider_selection_policy_delegate(list)),
        ("ModelCompiler's external_initializers_file_path",
         lambda _: autotune.ModelCompiler(None, relu(), external_initializers_file_path="weights.bin")),
    ],
)  # fmt: skip
def test_what_has_no_effect_warns_once(
    what: str, ask: Callable[[autotune.InferenceSession], None], session: autotune.InferenceSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(session_options, "_told", set())
    with pytest.warns(UserWarning, match=f"{what} has no effect in autotune: ") as told:
        ask(session)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(session)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: autotune.LoraAdapter().Load("adapter.onnx_adapter"),
        lambda: autotune.RunOptions().add_active_adapter(autotune.LoraAdapter()),
        lambda: autotune.register_execution_provider_library("npu", "npu.so"),
        lambda: autotune.unregister_execution_provider_library("npu"),
        lambda: autotune.SessionOptions().add_external_initializers_from_files_in_memory(["w"], [b""], [0]),
    ],
)
def test_what_would_change_the_program_is_refused(ask: Callable[[], None]) -> None:
    with pytest.raises(UnsupportedError):
        ask()


def test_other_devices_have_no_memory(session: autotune.InferenceSession) -> None:
    gpu, kind = autotune.OrtMemoryInfoDeviceType.GPU, autotune.OrtDeviceMemoryType.DEFAULT
    with pytest.raises(InputError, match="runs on the CPU"):
        autotune.OrtMemoryInfo.create_v2("Cpu", gpu, 0, 0, kind, 0, autotune.OrtAllocatorType.ORT_DEVICE_ALLOCATOR)
    with pytest.raises(InputError, match="cuda"):
        session.create_ortvalue_from_shape_and_type([2, 4], np.float32, "cuda")
    with pytest.raises(InputError, match="schedules come from the database"):
        session.set_tuning_results([{"ep": "ROCM"}], error_on_invalid=True)


def test_a_compiled_model_lies_beside_its_model_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "relu.onnx"
    path.write_bytes(relu())
    options = autotune.SessionOptions()
    options.intra_op_num_threads = 1
    autotune.ModelCompiler(options, path).compile_to_file()
    x = np.full((2, 4), -1, np.float32)
    (y,) = autotune.InferenceSession(tmp_path / "relu_ctx.onnx").run(None, {"x": x})
    assert np.all(y == 0)
    with pytest.raises(InputError, match="output_model_path"):
        autotune.ModelCompiler(options, relu()).compile_to_file()


def test_open_shapes_are_not_compiled_ahead() -> None:
    with pytest.raises(InputError, match="add_free_dimension_override_by_name"):
        autotune.ModelCompiler(None, relu("batch")).compile_to_bytes()
