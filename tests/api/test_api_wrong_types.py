"""Calls with values of the wrong kind: each is refused in one line, by an error of autotune."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import AutotuneError, InputError
from tests.cli.cli_models import conv_model

TARGET = "native -num-cores=1"
X = np.zeros((1, 3, 8, 8), np.float32)
CPU = autotune.OrtDevice.make("cpu", 0)


@pytest.fixture(scope="module")
def model() -> bytes:
    content: bytes = conv_model("N").SerializeToString()
    return content


@pytest.fixture(scope="module")
def session(model: bytes) -> autotune.InferenceSession:
    return autotune.InferenceSession(model, target=TARGET, database=False)


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"target": 5}, "a target is a text or a Target, not 5"),
    ({"target": []}, "a target is a text or a Target"),
    ({"shapes": 5}, "shapes are a mapping of names to dimensions, not 5"),
    ({"shapes": [1]}, "shapes are a mapping"),
    ({"shapes": {"x": 5}}, "the dimensions of 'x' are a list of whole numbers, not 5"),
    ({"shapes": {"x": "abc"}}, "not 'abc'"),
    ({"shapes": {"x": None}}, "not None"),
    ({"shapes": {"x": [1, 3, "a", 8]}}, "a list of whole numbers"),
    ({"shapes": {"x": [1, 3, 8.5, 8]}}, "a list of whole numbers"),
    ({"fixed": 3}, "InferenceSession: fixed must be a mapping of names to values or None, not 3"),
    ({"skip_passes": 3}, "InferenceSession: skip_passes must be a list of names, not 3"),
    ({"skip_passes": [3]}, "there is no graph pass '3'"),
    ({"max_error": "much"}, "InferenceSession: max_error must be a number or None, not 'much'"),
    ({"precision": 3}, "InferenceSession: precision must be a text, not 3"),
    ({"fallback": 3}, "3"),
    ({"on_new_shape": 3}, "3"),
    ({"providers": 5}, "providers must be a list of names, not 5"),
    ({"max_memory": "x"}, "InferenceSession: max_memory must be a whole number or None, not 'x'"),
    ({"max_memory": [3]}, "InferenceSession: max_memory must be a whole number or None, not [3]"),
    ({"dump_graph": 3}, "InferenceSession: dump_graph must be a path or None, not 3"),
    ({"dump_graph": "a\0b"}, "InferenceSession: dump_graph must be a path or None, not 'a\\x00b'"),
    ({"strict_fp": [3]}, "InferenceSession: strict_fp must be True or False, not [3]"),
    ({"max_loop_steps": "x"}, "InferenceSession: max_loop_steps must be a whole number or None, not 'x'"),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS)
def test_a_session_refuses_options(options: dict[str, Any], said: str, model: bytes) -> None:
    with pytest.raises(AutotuneError) as caught:
        autotune.InferenceSession(model, **{"target": TARGET, "database": False, **options})
    assert said in str(caught.value) and "\n" not in str(caught.value)


Ask = Callable[[Any], object]
CALLS: list[tuple[Ask, str]] = [
    (lambda session: session.run(None, {}), "the model takes x: f32[N,3,8,8]; got nothing"),
    (lambda session: session.run(None, None), "the inputs must be a mapping"),
    (lambda session: session.run("y", {"x": X}), "output_names must be a list of names"),
    (lambda session: session.run(None, {3: X}), "the model takes x"),
    (lambda session: session.run(None, {"x": object()}), "x"),
    (lambda session: session.run_with_ort_values(None, {"x": X}), "an OrtValue is wanted, not ndarray"),
    (lambda session: session.run_with_ortvaluevector(None, ["x"], [X], ["y"], [], [CPU]), "an OrtValue is wanted"),
    (lambda session: session.io_binding().bind_ortvalue_input("x", X), "an OrtValue is wanted, not ndarray"),
    (lambda session: session.io_binding().bind_input("x", "cpu", 0, np.float32, None, 8), "a shape is a list of"),
    (lambda session: session.run_named(None, {"x": X}, 3), "the outputs must be a mapping of names to arrays"),
    (lambda session: session.run_into(3, {"x": X}), "the outputs must be a mapping of names to arrays"),
    (lambda session: session.run_with_iobinding(None), "io_binding() makes what is run with, not None"),
    (lambda session: session.prepare(N="two"), "the extent of N is a whole number, not 'two'"),
    (lambda session: session.prepare(N=2.5), "the extent of N is a whole number, not 2.5"),
    (lambda session: session.set_ep_dynamic_options(3), "needs at least one option"),
    (lambda _: autotune.copy_tensors(None, None), "a list of OrtValues is wanted, not NoneType"),  # type: ignore[arg-type]
    (lambda _: autotune.copy_tensors([X], [X]), "an OrtValue is wanted, not ndarray"),  # type: ignore[list-item]
    (lambda _: autotune.OrtValue.ortvalue_from_numpy_with_onnx_type(X, "f"), "'f' is none"),  # type: ignore[arg-type]
    (lambda _: autotune.OrtValue.ortvalue_from_shape_and_type([2**60]), "of the shape"),
    (lambda _: autotune.OrtDevice.make(3, 0), "there is no device '3'"),  # type: ignore[arg-type]
    (lambda _: autotune.SparseTensor.sparse_coo_from_numpy("ab", X, X, CPU), "not 'ab'"),  # type: ignore[arg-type]
    (lambda _: autotune.SessionOptions().add_provider_for_devices([3]), "get_ep_devices() gives devices, not 3"),
    (lambda _: autotune.ModelPackageContext("a\0b"), "names no folder"),
    (lambda _: autotune.ModelCompiler(None, b"", flags="x"), "OrtCompileApiFlags"),  # type: ignore[arg-type]
    (lambda _: autotune.ModelCompiler(None, b"").compile_to_stream(3), "a function of bytes, not 3"),  # type: ignore[arg-type]
    (lambda _: autotune.compile(conv_model(1), TARGET, 5), "a database is a file, a Database, False"),  # type: ignore[arg-type]
    (lambda _: autotune.best_schedule(3), "a workload is a text or a Workload, not 3"),  # type: ignore[arg-type]
    (lambda _: autotune.tune("matmul a=8,8 b=8,8", budget=[]), "a budget is a text"),  # type: ignore[arg-type]
    (lambda _: autotune.Target.parse(3), "a target is a text or a Target, not 3"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("ask", "said"), CALLS, ids=[said for _, said in CALLS])
def test_a_call_is_refused(ask: Ask, said: str, session: autotune.InferenceSession) -> None:
    with pytest.raises(AutotuneError) as caught:
        ask(session)
    assert said in str(caught.value) and "\n" not in str(caught.value)


WORK = "matmul a=8,8 b=8,8"
FUNCTIONS: list[tuple[Callable[[], object], str]] = [
    (lambda: autotune.compile(conv_model(1), TARGET, False, max_memory="x"), "compile: max_memory must be a whole"),  # type: ignore[arg-type]
    (lambda: autotune.compile(conv_model(1), TARGET, False, dump_graph=3), "compile: dump_graph must be a path"),  # type: ignore[arg-type]
    (lambda: autotune.compile_shapes(conv_model("N"), 5, TARGET), "shapes are a mapping of names to dimensions, or a"),  # type: ignore[arg-type]
    (lambda: autotune.compile_shapes(conv_model("N"), [3], TARGET), "or a list of ShapeRanges, not [3]"),  # type: ignore[list-item]
    (lambda: autotune.compile_shapes(conv_model("N"), [{"N": (1,)}], TARGET), "or a list of ShapeRanges"),  # type: ignore[list-item]
    (lambda: autotune.compile_shapes(conv_model("N"), {"N": 3}, TARGET), "the dimensions of 'N' are a list of whole"),  # type: ignore[dict-item]
    (lambda: autotune.compile_staged(conv_model(1), TARGET, False, skip_passes=5), "skip_passes must be a list of"),  # type: ignore[arg-type]
    (lambda: autotune.ShapeRange(3), "shapes are a mapping of names to dimensions, not 3"),  # type: ignore[arg-type]
    (lambda: autotune.ShapeRange({"N": (1,)}, "x"), "ShapeRange: weight must be a number, not 'x'"),  # type: ignore[arg-type]
    (lambda: autotune.tasks(conv_model(1), TARGET, shapes=5), "shapes are a mapping of names to dimensions, not 5"),  # type: ignore[arg-type]
    (lambda: autotune.explain(WORK, TARGET, False, config=5), "explain: config must be a Config or None, not 5"),  # type: ignore[arg-type]
    (lambda: autotune.write_report(5, "r.html"), "write_report: model must be a path, not 5"),  # type: ignore[arg-type]
    (lambda: autotune.write_report("m.onnx", "r.html", rounds="x"), "write_report: rounds must be a whole number"),  # type: ignore[arg-type]
    (lambda: autotune.tune(WORK, TARGET, strategy=[3]), "tune: strategy must be a text, not [3]"),  # type: ignore[arg-type]
    (lambda: autotune.tune(WORK, TARGET, effort=5), "tune: effort must be a text, not 5"),  # type: ignore[arg-type]
    (lambda: autotune.tune(WORK, TARGET, seed="x"), "tune: seed must be a whole number, not 'x'"),  # type: ignore[arg-type]
    (lambda: autotune.tune(WORK, TARGET, imports=5), "tune: imports must be a list of names, not 5"),  # type: ignore[arg-type]
    (lambda: autotune.tune(WORK, TARGET, callbacks=5), "tune: callbacks must be a list of functions, not 5"),  # type: ignore[arg-type]
    (lambda: autotune.optimize(conv_model(1), strict_fp="no"), "optimize: strict_fp must be True or False, not 'no'"),  # type: ignore[arg-type]
    (lambda: autotune.compile(conv_model(1), TARGET, False).save(3), "CompiledModel.save: path must be a path, not 3"),  # type: ignore[arg-type]
    (lambda: autotune.compile(conv_model(1), TARGET, False).write(3), "CompiledModel.write: file must be an open file"),  # type: ignore[arg-type]
    (lambda: autotune.compile(conv_model(1), TARGET, False).run(3), "feeds must be a mapping of names to values"),  # type: ignore[arg-type]
    (lambda: autotune.Target.from_json(3), "Target.from_json: text must be a text, not 3"),  # type: ignore[arg-type]
    (lambda: autotune.Target.parse(TARGET).with_threads("x"), "with_threads: num_threads must be a whole number"),  # type: ignore[arg-type]
    (lambda: autotune.Workload.from_json(3), "Workload.from_json: text must be a text, not 3"),  # type: ignore[arg-type]
    (lambda: autotune.Database(3), "not 3; Database.open(path) opens a file"),  # type: ignore[arg-type]
    (lambda: autotune.Database.open(3), "Database.open: path must be a path, not 3"),  # type: ignore[arg-type]
    (lambda: autotune.Database.open("d", busy_seconds="x"), "Database.open: busy_seconds must be a number, not 'x'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("ask", "said"), FUNCTIONS, ids=[said for _, said in FUNCTIONS])
def test_a_function_refuses_arguments(ask: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError) as caught:
        ask()
    assert said in str(caught.value) and "\n" not in str(caught.value)
