"""Engines run in processes of their own, and what goes wrong there is one line here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks import models
from benchmarks.engines import Engine, EngineError, runs_per_turn, time_in_turn

pytest.importorskip("onnxruntime")


@pytest.fixture
def softmax(tmp_path: Path) -> Path:
    """relu, then softmax, of a 4×8 tensor."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Softmax", ["y"], ["z"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, 8])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "tiny.onnx")
    return tmp_path / "tiny.onnx"


def test_an_engine_runs_times_and_measures_its_memory(softmax: Path) -> None:
    feeds = models.example(onnx.load(softmax))
    with Engine("onnxruntime", softmax) as engine:
        engine.feed(feeds)
        (output,) = engine.run()
        relu = np.maximum(feeds["x"], 0)
        expected = np.exp(relu) / np.exp(relu).sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(output, expected, rtol=1e-5)
        samples = time_in_turn([engine, engine], rounds=2, runs=3)
        assert [len(found) for found in samples] == [6, 6] and min(map(min, samples)) > 0
        assert runs_per_turn(engine, 0.0) == 1
        memory = engine.memory()
        assert 0 < memory["baseline"] <= memory["peak"] and engine.load_seconds > 0


def test_what_an_engine_refuses_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(EngineError, match=r"^onnxruntime: .*broken\.onnx") as caught:
        Engine("onnxruntime", tmp_path / "broken.onnx")
    assert "\n" not in str(caught.value)


def test_an_engine_that_is_not_installed_is_refused(softmax: Path) -> None:
    with pytest.raises(EngineError, match="tensorrt is not installed"):
        Engine("tensorrt", softmax)


def test_the_last_layer_before_softmax_becomes_the_output(softmax: Path) -> None:
    model = onnx.load(softmax)
    cut = models.without_softmax(model)
    assert [node.op_type for node in cut.graph.node] == ["Relu"] and cut.graph.output[0].name == "y"
    assert len(model.graph.node) == 2
    assert models.without_softmax(cut) == cut


def test_peers_and_ours_agree_on_the_output(softmax: Path, tmp_path: Path) -> None:
    model = onnx.load(softmax)
    rows = models.output_error(model, tmp_path, models.example(model), 1, None)
    assert all(row["right"] for row in rows if "right" in row)
    assert {str(row["engine"]) for row in rows} >= {"untuned"}
