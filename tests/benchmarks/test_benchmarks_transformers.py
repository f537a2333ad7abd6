"""The transformers of the zoo: right, and all of a layer in seven kernels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from autotune import compile as compile_model
from autotune.graph import load_model, optimize, partition
from benchmarks import transformers, zoo


@pytest.mark.parametrize("name", ["bert_base", "vit_base"])
def test_a_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(transformers, "LAYERS", 1)
    model = zoo.build(name)
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    graph = optimize(load_model(data))
    kernels = [group.workload.nodes[0].op for group in partition(graph) if not group.is_view]
    assert kernels.count("attention") == 1
    assert kernels.count("layer_norm") == 3
    assert kernels.count("matmul") == (4 if name == "bert_base" else 5)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    feed = {given.name: np.random.default_rng(0).standard_normal(given.shape, dtype=np.float32)}
    (expected,) = session.run(None, feed)
    (found,) = compile_model(data, "native -num-cores=1", False).run(feed)
    assert np.abs(found - expected).max() <= 1e-5 * np.ptp(expected)
