"""The deep networks of the zoo."""

from __future__ import annotations

import onnx
import pytest

from autotune.graph import load_model, optimize, partition
from benchmarks import zoo


@pytest.mark.parametrize(
    ("name", "convolutions", "gflop"),
    [
        ("darknet53", 52, 14.2),
        ("fcn_resnet50", 55, 53.0),
        ("inception_v3", 94, 11.4),
        ("inception_v4", 149, 24.5),
        ("resnet101", 104, 15.6),
        ("resnet152", 155, 23.0),
        ("wide_resnet50", 53, 22.8),
    ],
)
def test_networks_have_their_layers(name: str, convolutions: int, gflop: float) -> None:
    model = zoo.build(name)
    onnx.checker.check_model(model)
    kernels = [g.workload for g in partition(optimize(load_model(model.SerializeToString()))) if not g.is_view]
    assert sum("conv2d" in w.describe() for w in kernels) == convolutions
    assert sum(w.flops for w in kernels) / 1e9 == pytest.approx(gflop, rel=0.05)
