"""A fixed part of the graph cases; `python -m benchmarks.fuzz` runs many more."""

from __future__ import annotations

import onnx

from tests.property.fuzz import GRAPHS, every, failures
from tests.property.random_models import random_model

CASES = 60


def test_random_models_are_right() -> None:
    assert every(failures(range(CASES), "native -num-cores=2", entry=GRAPHS)) == ([], 0)


def test_random_models_are_sound_and_the_same_each_time() -> None:
    seen: set[str] = set()
    opsets, dtypes = set(), set()
    for seed in range(200):
        model = random_model(seed)
        proto = model.proto()
        onnx.checker.check_model(proto, full_check=True)
        assert proto == random_model(seed).proto()
        assert proto.graph.output
        seen |= {node.op_type for node in model.nodes}
        opsets.add(model.opset)
        dtypes |= {value.dtype.name for value in model.values.values()}
    assert len(seen) > 80
    assert {6, 13, 28} <= opsets
    assert {"float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"} <= dtypes
