"""The zoo builds real architectures with varied weights, the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autotune.graph import load_model
from benchmarks import zoo

SMALL = ["mobilenetv2", "shufflenet", "squeezenet"]


@pytest.mark.parametrize("name", SMALL)
def test_builds_and_loads(name: str) -> None:
    model = zoo.build(name)
    onnx.checker.check_model(model)
    assert [node for node in model.graph.node if node.op_type == "ConstantOfShape"] == []
    graph = load_model(model.SerializeToString())
    assert [value.shape for value in graph.inputs] == [(1, 3, 224, 224)]


def test_weights_follow_the_seed_and_vary() -> None:
    first, again, other = (zoo.build("squeezenet", seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    for tensor in first.graph.initializer:
        array = numpy_helper.to_array(tensor)
        assert array.dtype == np.int64 or array.std() > 0


def test_unknown_name_lists_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        zoo.main(["resnet51"])
    assert "mobilenetv2" in capsys.readouterr().err


def test_writes_a_file_or_says_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo.main(["squeezenet", "-o", str(tmp_path / "s.onnx")]) == 0
    assert load_model(tmp_path / "s.onnx").name
    assert zoo.main(["squeezenet", "-o", str(tmp_path / "absent" / "s.onnx")]) == 1
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("name", SMALL)
def test_outputs_are_finite_and_differ_from_class_to_class(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = zoo.build(name)
    if model.graph.node[-1].op_type == "Softmax":
        del model.graph.node[-1]
        model.graph.output[0].name = model.graph.node[-1].output[0]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = np.random.default_rng(0).standard_normal((1, 3, 224, 224), dtype=np.float32)
    logits = session.run(None, {session.get_inputs()[0].name: feed})[0]
    assert np.isfinite(logits).all()
    assert len(np.unique(logits)) > 800
    assert 0.1 < logits.std() < 10
