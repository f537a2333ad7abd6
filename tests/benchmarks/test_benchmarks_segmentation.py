"""The segmentation network of the zoo."""

from __future__ import annotations

import onnx

from autotune.graph import load_model, optimize, partition
from benchmarks import zoo


def test_unet() -> None:
    model = zoo.build("unet")
    onnx.checker.check_model(model)
    graph = optimize(load_model(model.SerializeToString()))
    assert [v.shape for v in graph.inputs] == [(1, 3, 256, 256)]
    kernels = [g.workload for g in partition(graph) if not g.is_view]
    convolutions = [w.anchor.op for w in kernels if w.anchor is not None and "conv" in w.anchor.op]
    assert len(convolutions) == 23
    assert 24.0e9 < sum(w.flops for w in kernels) < 24.5e9
    assert sum("resize" in w.describe() for w in kernels) == 2
