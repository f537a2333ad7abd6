"""The zoo's newer networks: what their layers become, counted."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest

from autotune.graph import load_model, optimize, partition
from benchmarks import decoders, zoo


def kernels(name: str) -> tuple[Counter[str], float]:
    """Kernels by their heavy operator, and floating-point operations."""
    model = zoo.build(name)
    onnx.checker.check_model(model)
    graph = optimize(load_model(model.SerializeToString()))
    workloads = [group.workload for group in partition(graph) if not group.is_view]
    anchors = Counter(w.nodes[0].op if w.anchor is None else w.anchor.op for w in workloads)
    return anchors, sum(w.flops for w in workloads)


@pytest.mark.parametrize(
    ("name", "convolutions", "others", "gflop"),
    [
        ("efficientnet_b0", 81, {"reduce_mean": 17, "mul": 16, "matmul": 1}, 0.81),
        ("efficientnet_lite0", 49, {"reduce_mean": 1, "matmul": 1}, 0.79),
        ("mobilenetv3_large", 62, {"reduce_mean": 9, "mul": 8, "matmul": 2}, 0.45),
        ("resnext50", 53, {"max_pool": 1, "reduce_mean": 1, "matmul": 1}, 8.5),
        ("yolov5s", 60, {"max_pool": 3, "transpose": 3, "resize": 2}, 4.14),
    ],
)
def test_convolutional_networks(name: str, convolutions: int, others: dict[str, int], gflop: float) -> None:
    found, flops = kernels(name)
    assert found == Counter({**others, "conv2d": convolutions})
    assert flops == pytest.approx(gflop * 1e9, rel=0.02)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("gpt2", {"layer_norm": 3, "matmul": 4, "attention": 1}),
        ("llama", {"rms_norm": 3, "matmul": 7, "rotary": 2, "attention": 1}),
    ],
)
def test_a_layer_of_a_decoder(name: str, layer: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "LAYERS", 1)
    found, _ = kernels(name)
    assert found == Counter(layer)


@pytest.mark.parametrize(("name", "matmuls", "attentions"), [("convnext_tiny", 37, 0), ("swin_tiny", 52, 12)])
def test_networks_of_stages(name: str, matmuls: int, attentions: int) -> None:
    found, _ = kernels(name)
    assert (found["matmul"], found["attention"]) == (matmuls, attentions)
