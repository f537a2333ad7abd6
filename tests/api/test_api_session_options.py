"""Options, values and bindings in ONNX Runtime's terms: what is heeded, what warns, and what is refused."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.api import session_options
from autotune.errors import InputError, ModelError, UnsupportedError
from tests.cli.cli_models import conv_model

TARGET = "native -num-cores=1"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not warned yet."""
    monkeypatch.setattr(session_options, "_told", set())


def session(options: object = None, **more: object) -> autotune.InferenceSession:
    return autotune.InferenceSession(
        conv_model(1).SerializeToString(), options, target=TARGET, database=False, **more  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.usefixtures("fresh")
def test_an_option_without_effect_warns_once() -> None:
    options = autotune.SessionOptions()
    with pytest.warns(UserWarning, match="inter_op_num_threads has no effect in autotune: one kernel") as told:
        options.inter_op_num_threads = 4
    assert told[0].filename == __file__, "the line of the script, from any depth"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        autotune.SessionOptions().inter_op_num_threads = 2
        options.inter_op_num_threads = 0
        options.intra_op_num_threads = 1
    assert repr(options) == "SessionOptions(intra_op_num_threads=1)"


@pytest.mark.usefixtures("fresh")
def test_another_provider_warns_once() -> None:
    with pytest.warns(UserWarning, match="CUDAExecutionProvider has no effect") as told:
        session(providers=["CUDAExecutionProvider", ("CPUExecutionProvider", {})])
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(providers=["CUDAExecutionProvider"])


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("intra_op_num_threads", "two", "intra_op_num_threads is a number, not 'two'"),
        ("enable_profiling", 1, "enable_profiling is True or False, not 1"),
        ("profile_file_prefix", None, "profile_file_prefix is a text, not None"),
    ],
)
def test_options_have_types(name: str, value: object, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        setattr(autotune.SessionOptions(), name, value)


def test_wrong_uses_are_one_line() -> None:
    options = autotune.SessionOptions()
    with pytest.raises(AttributeError, match="no option 'intra_threads'"):
        options.intra_threads = 1
    with pytest.raises(InputError, match="no entry 'session.x'"):
        options.get_session_config_entry("session.x")
    with pytest.raises(InputError, match="dimension 'batch' cannot be -1"):
        options.add_free_dimension_override_by_name("batch", -1)
    with pytest.raises(UnsupportedError, match="add_initializer"):
        options.add_initializer("w", object())
    with pytest.raises(UnsupportedError, match="register_custom_ops_library"):
        options.register_custom_ops_library("lib.so")
    with pytest.raises(InputError, match="providers must be a list"):
        session(providers="CPUExecutionProvider")
    with pytest.raises(InputError, match="log severity"):
        autotune.set_default_logger_severity(9)
    run = autotune.RunOptions()
    run.terminate = True
    with pytest.raises(InputError, match="terminate is set"):
        session().run(None, {"x": np.zeros((1, 3, 8, 8), np.float32)}, run)


def denoted(dim: int | str | None) -> bytes:
    """y = relu(x), z = relu(u), whose first dimensions are equal, and a batch where x says so."""
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["u"], ["z"])], "denoted",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [dim, 3]) for name in ("x", "u")],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z")],
        ),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    data: bytes = model.SerializeToString()
    return data


@pytest.mark.parametrize(
    ("dim", "denotation", "shapes"),
    [
        ("n", "data_batch", [[2, 3], [2, 3]]),
        (None, "DATA_BATCH", [[2, 3], [None, 3]]),
        (2, "DATA_BATCH", [[2, 3], [2, 3]]),
        ("n", "DATA_CHANNEL", [["n", 3], ["n", 3]]),
    ],
)
def test_dimensions_by_denotation(dim: int | str | None, denotation: str, shapes: list[list[object]]) -> None:
    options = autotune.SessionOptions()
    options.add_free_dimension_override_by_denotation(denotation, 2)
    found = autotune.InferenceSession(denoted(dim), options, target=TARGET, database=False)
    assert [arg.shape for arg in found.get_inputs()] == shapes


def test_dimensions_by_denotation_that_contradict() -> None:
    options = autotune.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    with pytest.raises(ModelError, match="input 'x': dimension 0 is 5, and DATA_BATCH is to be 2"):
        autotune.InferenceSession(denoted(5), options, target=TARGET, database=False)
    options.add_free_dimension_override_by_name("n", 4)
    with pytest.raises(ModelError, match="input 'x': dimension 0 is 4, and DATA_BATCH is to be 2"):
        autotune.InferenceSession(denoted("n"), options, target=TARGET, database=False)
    with pytest.raises(InputError, match="dimension 'DATA_BATCH' cannot be -1"):
        options.add_free_dimension_override_by_denotation("DATA_BATCH", -1)


@pytest.mark.usefixtures("fresh")
def test_options_of_onnxruntime_warn_once_of_what_cannot_be_read() -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with pytest.warns(UserWarning, match=r"\(dimensions, entries\) has no effect in autotune: it cannot be read"):
        session(options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(options)


class Shared:
    """What another library's tensor is to those who know DLPack alone."""

    def __init__(self, array: np.ndarray[Any, Any], elsewhere: bool = False) -> None:
        self.array, self.elsewhere = array, elsewhere

    def __dlpack__(self, **how: object) -> object:
        if self.elsewhere:
            raise BufferError("it lies on another device")
        return self.array.__dlpack__(**how)  # type: ignore[arg-type]

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2 if self.elsewhere else 1, 0)


def test_feeds_that_know_dlpack_alone() -> None:
    x = np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)
    here = session()
    np.testing.assert_array_equal(here.run(None, {"x": Shared(x)})[0], here.run(None, {"x": x})[0])
    with pytest.raises(InputError, match="input 'x' must be f32"):
        here.run(None, {"x": Shared(x.astype(np.float64))})
    with pytest.raises(InputError, match="input 'x' is no array: it lies on another device"):
        here.run(None, {"x": Shared(x, elsewhere=True)})


def test_values_share_their_memory() -> None:
    array = np.zeros((2, 3), np.float32)
    value = autotune.OrtValue.ortvalue_from_numpy(array)
    value.update_inplace(np.ones((2, 3), np.float32))
    assert array.all() and value.data_ptr() == array.ctypes.data and np.asarray(value) is array
    again = autotune.OrtValue.from_dlpack(value)
    assert again.data_ptr() == value.data_ptr() and repr(again) == "<OrtValue tensor(float) [2, 3]>"
    assert autotune.OrtValue.ortvalue_from_shape_and_type([4], 7).data_type() == "tensor(int64)"


def test_memory_read_as_another_type() -> None:
    bits = np.asarray([0x3F80, 0x4000], np.uint16)
    value = autotune.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    assert value.data_type() == "tensor(bfloat16)" and value.data_ptr() == bits.ctypes.data
    assert value.numpy().astype(np.float32).tolist() == [1, 2]


@pytest.mark.parametrize("written_to", [False, True])
def test_lists_of_values(written_to: bool) -> None:
    x = np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)
    here, device = session(), autotune.OrtDevice.make("CPU", 0)
    (right,) = here.run(None, {"x": x})
    name, value = here.get_outputs()[0].name, autotune.OrtValue.ortvalue_from_numpy(x)
    given = autotune.OrtValue.ortvalue_from_shape_and_type(right.shape)
    fetches = [given] if written_to else []
    here.run_with_ortvaluevector(None, ["x"], [value], [name], fetches, [device])
    np.testing.assert_array_equal(fetches[0].numpy(), right)
    assert (fetches[0].data_ptr() == given.data_ptr()) == written_to
    binding = here.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output(name)
    here.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs_as_ortvaluevector()[0].numpy(), right)
    with pytest.raises(InputError, match="one feed per name"):
        here.run_with_ortvaluevector(None, ["x"], [], [name], [], [device])
    with pytest.raises(InputError, match="fetch_devices are"):
        here.run_with_ortvaluevector(None, ["x"], [value], [name], [], ["cpu"])  # type: ignore[list-item]


def test_a_function_that_is_told_what_is_logged() -> None:
    logger = logging.getLogger("autotune")
    level, handlers, heard = logger.level, list(logger.handlers), list[tuple[object, ...]]()
    try:
        autotune.set_default_logger_callback(lambda *_: heard.append(()))
        autotune.set_default_logger_callback(lambda *told: heard.append(told), severity=2)
        logger.getChild("room").warning("it is %s", "late")
        logger.info("it is early")
        autotune.set_default_logger_callback(None)
        logger.warning("nobody hears")
        assert logger.handlers == handlers
    finally:
        logger.setLevel(level)
    ((severity, category, who, where, message),) = heard
    assert (severity, category, who, message) == (2, "autotune", "autotune.room", "it is late")
    assert str(where).startswith("test_api_session_options.py:")


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: autotune.OrtDevice.make("cuda", 0), "no device 'cuda'"),
        (lambda: autotune.OrtDevice.make("cpu", 1), "with the number 1"),
        (lambda: autotune.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(2), 1), "sizes differ"),
        (lambda: autotune.OrtValue.ortvalue_from_numpy(np.zeros(2), "cuda"), "no device 'cuda'"),
        (lambda: autotune.OrtValue.ortvalue_from_numpy([1.0]), "of a NumPy array, not of list"),  # type: ignore[arg-type]
        (lambda: autotune.OrtValue.ortvalue_from_shape_and_type([2], 99), "ONNX's number 99"),
        (lambda: autotune.OrtValue.ortvalue_from_shape_and_type([2], "floaty"), "'floaty' is no dtype"),
        (lambda: autotune.OrtValue.from_dlpack(3), "no tensor that can be shared"),
        (
            lambda: autotune.OrtValue.ortvalue_from_numpy(np.zeros(2)).update_inplace(np.zeros(3)),
            r"float64\[3\] does not fit",
        ),
    ],
)
def test_values_refuse(call: object, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        call()  # type: ignore[operator]


def test_bindings_refuse() -> None:
    here = session()
    binding = here.io_binding()
    with pytest.raises(InputError, match="no input named 'q'"):
        binding.bind_cpu_input("q", np.zeros(1))
    with pytest.raises(InputError, match="no device 'cuda'"):
        binding.bind_output("y", "cuda")
    with pytest.raises(InputError, match="needs a dtype and a shape"):
        binding.bind_output("y", buffer_ptr=64)
    with pytest.raises(InputError, match="lies at address 0"):
        binding.bind_input("x", "cpu", 0, np.float32, (1, 3, 8, 8), 0)
    with pytest.raises(InputError, match="no output is bound"):
        here.run_with_iobinding(binding)
    binding.bind_output("y")
    with pytest.raises(InputError, match="the model takes"):
        here.run_with_iobinding(binding)


def test_a_failed_run_reaches_the_callback() -> None:
    found: list[tuple[object, object, str]] = []
    here = session()
    here.run_async(None, {}, lambda *answer: found.append(answer), 5)
    assert here._async is not None
    here._async.shutdown(wait=True)
    assert found[0][:2] == ([], 5) and "the model takes" in found[0][2]


def test_profiles_end_once(tmp_path: Path) -> None:
    options = autotune.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "missing" / "p_")
    here = session(options)
    assert here.get_profiling_start_time_ns() > 0
    with pytest.raises(InputError, match="cannot write the profile"):
        here.end_profiling()
    assert here.end_profiling() == "" and here.get_profiling_start_time_ns() == 0
