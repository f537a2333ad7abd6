"""`optimize`, and models that ONNX Runtime runs because autotune refuses them."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.api.fallback import REASON
from autotune.errors import InputError, ModelError, UnsupportedError
from tests.cli.cli_models import conv_model

TARGET = "native -num-cores=1"
VALUES = np.arange(6, dtype=np.int32)


def refused_model(op: str = "MurmurHash3") -> bytes:
    """A hash of each number: an operator of ONNX Runtime's own that no network needs; `x` i32[N], `y` u32."""
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], domain="com.microsoft", positive=1)],
        "hash",
        [helper.make_tensor_value_info("x", TensorProto.INT32, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.UINT32, ["N"])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return model


def test_without_a_fallback_it_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="MurmurHash3"):
        autotune.InferenceSession(refused_model(), target=TARGET, database=False)


def test_a_fallback_runs_and_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "hash.onnx"
    path.write_bytes(refused_model())
    with pytest.warns(autotune.FallbackWarning, match="onnxruntime runs the model, untuned: .*MurmurHash3") as told:
        session = autotune.InferenceSession(path, target=TARGET, database=False, fallback="onnxruntime")
    assert told[0].filename == __file__, "the line that asked for it"
    (found,) = session.run(["y"], {"x": VALUES})
    assert found.dtype == np.uint32 and len(set(found.tolist())) == len(VALUES)
    assert session.engine == "onnxruntime" and "by onnxruntime: (x: tensor(int32)['N'])" in repr(session)
    assert "MurmurHash3" in session.get_modelmeta().custom_metadata_map[REASON]
    assert session.get_outputs()[0].shape == ["N"] and session.segments == 0
    into = np.empty(6, np.uint32)
    session.run_into({"y": into}, {"x": VALUES})
    np.testing.assert_array_equal(into, found)
    with pytest.raises(InputError, match="onnxruntime: .*"):
        session.run(None, {"x": VALUES.astype(np.float64)})
    with pytest.raises(InputError, match="another engine runs it"):
        _ = session.program


def test_what_is_supported_does_not_fall_back() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", autotune.FallbackWarning)
        data = conv_model().SerializeToString()
        session = autotune.InferenceSession(data, target=TARGET, database=False, fallback="onnxruntime")
    assert session.engine == "autotune" and "by" not in repr(session)


def test_what_nobody_runs_is_refused_with_both_reasons() -> None:
    with pytest.raises(UnsupportedError, match=r"Nowhere.*; onnxruntime refuses the model, too: "):
        autotune.InferenceSession(refused_model("Nowhere"), target=TARGET, database=False, fallback="onnxruntime")


def test_a_missing_fallback_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UnsupportedError, match=r"MurmurHash3.*onnxruntime, is not installed \(pip install onnxruntime"):
        autotune.InferenceSession(refused_model(), target=TARGET, database=False, fallback="onnxruntime")


def test_only_refusals_fall_back() -> None:
    with pytest.raises(ModelError, match="no ONNX|not ONNX|truncated|damaged") as found:
        autotune.InferenceSession(b"\x08", target=TARGET, database=False, fallback="onnxruntime")
    assert not isinstance(found.value, UnsupportedError)
    with pytest.raises(InputError, match="fallback is 'onnxruntime' or None, not 'tvm'"):
        autotune.InferenceSession(refused_model(), fallback="tvm")
    with pytest.raises(UnsupportedError, match="MurmurHash3"):
        autotune.InferenceSession(
            refused_model(), target=TARGET, database=False, fallback="onnxruntime", fixed={"x": VALUES}
        )


def test_optimize_tunes_and_gives_a_session(tmp_path: Path) -> None:
    model, database = conv_model(), tmp_path / "tuning.sqlite"
    session = autotune.optimize(model, TARGET, database, budget="2 trials")
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    plain = autotune.InferenceSession(model, target=TARGET, database=False)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], plain.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
    assert database.is_file()


def test_optimize_falls_back_where_it_is_asked_to() -> None:
    with pytest.raises(UnsupportedError, match="MurmurHash3"):
        autotune.optimize(refused_model(), TARGET, False, budget="1 trial", shapes={"x": (6,)})
    with pytest.warns(autotune.FallbackWarning):
        session = autotune.optimize(
            onnx.load_from_string(refused_model()), TARGET, False, budget="1 trial", shapes={"x": (6,)},
            fallback="onnxruntime",
        )  # fmt: skip
    assert len(session.run(None, {"x": VALUES})[0]) == 6
    with pytest.raises(InputError, match="fallback is"):
        autotune.optimize(refused_model(), TARGET, fallback="none")
