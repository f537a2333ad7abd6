"""A fixed part of the graph cases; `python -m benchmarks.fuzz` runs many more."""

from __future__ import annotations

import onnx

from tests.property.fuzz import GRAPHS, failures
from tests.property.random_models import random_model

CASES = 60


def test_random_models_are_right() -> None:
    assert list(failures(range(CASES), "native -num-cores=2", entry=GRAPHS)) == []


def test_random_models_are_sound_and_the_same_each_time() -> None:
    seen: set[str] = set()
    for seed in range(40):
        model = random_model(seed)
        proto = model.proto()
        onnx.checker.check_model(proto, full_check=True)
        assert proto == random_model(seed).proto()
        assert proto.graph.output
        seen |= {node.op_type for node in model.nodes}
    assert len(seen) > 30
