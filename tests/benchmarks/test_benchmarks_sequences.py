"""The recurrent network of the zoo: one matmul and one recurrence per layer, the answer of another engine."""

from __future__ import annotations

import numpy as np
import pytest

from autotune import InferenceSession
from autotune.graph import load_model, optimize, partition
from benchmarks import zoo


def test_lstm(tmp_path) -> None:  # type: ignore[no-untyped-def]
    onnxruntime = pytest.importorskip("onnxruntime")
    model = zoo.build("lstm")
    groups = [g for g in partition(optimize(load_model(model.SerializeToString()))) if not g.is_view]
    anchors = [g.workload.anchor.op for g in groups if g.workload.anchor is not None]
    assert [op for op in anchors if op in ("matmul", "lstm")] == ["matmul", "lstm"] * 2 + ["matmul"]
    feed = {"input": np.random.default_rng(0).standard_normal((1, 64, 512), dtype=np.float32)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, feed)
    (found,) = InferenceSession(model.SerializeToString(), database=False).run(None, feed)
    assert np.isfinite(wanted).all() and len(np.unique(wanted)) > 800
    np.testing.assert_allclose(found, wanted, atol=1e-5)
