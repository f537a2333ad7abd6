"""A fixed part of the graph cases; `python -m benchmarks.fuzz` runs many more."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import onnx

from autotune.errors import ModelError
from autotune.graph import Graph, Node, Output, evaluate_graph, load_model, verify
from autotune.graph.builder import make_attrs
from autotune.graph.passes.raise_slices import raise_slices
from tests.property.fuzz import GRAPHS, every, failures
from tests.property.random_models import random_model

CASES = 40


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


def test_a_few_places_of_what_random_models_compute() -> None:
    """Slices behind nodes of random models: what is computed for them alone is what it is in the whole."""
    raised = 0
    for seed in range(CASES):
        model = random_model(seed)
        try:
            graph = few_places(load_model(model.proto().SerializeToString()), random.Random(seed))
        except ModelError:  # open dimensions
            continue
        found = raise_slices(graph)
        verify(found)
        raised += found is not graph
        feeds = {name: model.values[name] for name in model.inputs}
        right, few = evaluate_graph(graph, feeds), evaluate_graph(found, feeds)
        for name, array in right.items():
            largest = float(np.abs(array).max(initial=1, where=np.isfinite(array)))
            np.testing.assert_allclose(few[name], array, 1e-3, 1e-4 * largest, err_msg=f"case {seed}, {name}")
    assert raised > CASES // 3


def few_places(graph: Graph, rng: random.Random) -> Graph:
    """The graph with few places of one of its last values as its output."""
    able = [node for node in graph.nodes[-6:] if max(node.output.shape, default=0) > 1]
    if not able:
        return graph
    value = rng.choice(able).output
    axis = rng.choice([d for d, extent in enumerate(value.shape) if extent > 1])
    count = rng.randint(1, value.shape[axis] // 2)
    begin, size = [0] * len(value.shape), list(value.shape)
    begin[axis], size[axis] = rng.randint(0, value.shape[axis] - count), count
    attrs = make_attrs(begin=tuple(begin), size=tuple(size), step=(1,) * len(size))
    part = Node("slice", (value.name,), replace(value, name="few", shape=tuple(size)), attrs)
    return replace(graph, nodes=(*graph.nodes, part), outputs=(Output("few", "few"),))
