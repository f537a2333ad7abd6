"""ONNX models of a node or two for the graph tests, and the comparison with the ONNX reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import settings
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.graph import evaluate_graph, load_model, optimize, partition
from autotune.ops import parse_workload

Array = NDArray[Any]
Dims = Sequence[int | str | None] | None
FEW = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def random(*shape: int, seed: int = 0, low: float = -2, high: float = 2) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def build(
    nodes: Sequence[onnx.NodeProto] | onnx.NodeProto,
    feeds: Mapping[str, Array],
    tensors: Mapping[str, Array] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 13,
) -> onnx.ModelProto:
    """A model whose inputs are the feeds and whose outputs have no declared type."""
    nodes = [nodes] if isinstance(nodes, onnx.NodeProto) else list(nodes)
    graph = helper.make_graph(
        nodes,
        "test",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (tensors or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Dims],
    outputs: Sequence[str],
    tensors: Mapping[str, Array] | None = None,
    opset: int = 13,
    dtype: int = TensorProto.FLOAT,
    output_dtype: int | None = None,
) -> onnx.ModelProto:
    """A model from input dimensions (possibly open or impossible); all inputs have one dtype."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, dtype, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info(name, output_dtype or dtype, None) for name in outputs],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in (tensors or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def check(model: onnx.ModelProto, feeds: Mapping[str, Array], expected: Sequence[Array] | None = None) -> None:
    """Converted, and converted and optimised, the model computes what the reference computes."""
    wanted_arrays: list[Array] = [np.asarray(a) for a in expected or _reference(model, feeds)]
    graph = load_model(model.SerializeToString())
    for variant in (graph, optimize(graph)):
        found = evaluate_graph(variant, feeds)
        assert list(found) == [output.name for output in model.graph.output]
        for array, wanted in zip(found.values(), wanted_arrays, strict=True):
            assert array.shape == wanted.shape
            assert array.dtype == wanted.dtype
            np.testing.assert_allclose(array, wanted, rtol=2e-5, atol=2e-5)
    for group in partition(graph):
        assert parse_workload(group.workload.describe()) == group.workload


def _reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    return list(ReferenceEvaluator(model).run(None, dict(feeds)))
