"""Real architectures through loader, passes, partition and reference executor, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph import evaluate_graph, load_model, optimize, partition, tasks
from benchmarks import zoo


@pytest.mark.parametrize(
    ("name", "groups", "distinct"),
    [
        ("resnet50", 58, 31),
        ("resnet18", 24, 21),
        ("squeezenet", 39, 23),
        ("mobilenetv2", 55, 32),
        ("shufflenet", 111, 33),
    ],
)
def test_fusion(name: str, groups: int, distinct: int) -> None:
    graph = optimize(load_model(zoo.build(name).SerializeToString()))
    found = partition(graph)
    assert len(found) == groups
    assert len(tasks(graph)) == distinct
    # Batch normalisation and dropout are gone, and every bias, residual and activation is inside a kernel.
    alone = ["+".join(node.op for node in g.workload.nodes) for g in found if g.workload.anchor is None]
    assert set(alone) <= {"relu"}  # behind shufflenet's concat
    for group in found:
        weighted = any(entry.constant for entry in group.workload.inputs)
        assert weighted == (group.workload.nodes[0].op in ("conv2d", "matmul"))


@pytest.mark.parametrize("name", ["squeezenet", "mobilenetv2", "shufflenet"])
def test_the_same_numbers_as_onnxruntime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    data = zoo.build(name).SerializeToString()
    graph = optimize(load_model(data))
    feed = np.random.default_rng(0).standard_normal((1, 3, 224, 224), dtype=np.float32)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {graph.inputs[0].name: feed})
    (found,) = evaluate_graph(graph, {graph.inputs[0].name: feed}).values()
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * float(np.ptp(expected)))
