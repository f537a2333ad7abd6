"""Calls with values of the wrong kind: each is refused in one line, by an error of autotune."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import AutotuneError
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
    ({"fixed": 3}, "values of inputs are a mapping of names to arrays, not 3"),
    ({"skip_passes": 3}, "graph passes to leave out are a list of names, not 3"),
    ({"skip_passes": [3]}, "there is no graph pass '3'"),
    ({"max_error": "much"}, "the largest error 'much' is no share of a range"),
    ({"precision": 3}, "there is no precision 3"),
    ({"fallback": 3}, "3"),
    ({"on_new_shape": 3}, "3"),
    ({"providers": 5}, "providers must be a list of names, not 5"),
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
