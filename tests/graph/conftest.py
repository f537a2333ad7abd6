"""Small ONNX models for the graph tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[np.generic]
Dims = Sequence[int | str | None] | None
MakeModel = Callable[..., onnx.ModelProto]


def build_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Dims],
    outputs: Sequence[str],
    tensors: Mapping[str, Array] | None = None,
    opset: int = 13,
    dtype: int = TensorProto.FLOAT,
    output_dtype: int | None = None,
) -> onnx.ModelProto:
    """A model; all inputs have one dtype, outputs have no declared shape."""
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


@pytest.fixture
def make_model() -> MakeModel:
    return build_model
