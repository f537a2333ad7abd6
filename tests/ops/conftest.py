"""How operators are tested: the workload's ComputeDef evaluated, against onnx.reference on a one-node model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, compute_def
from autotune.tensor import ComputeDef, DType
from autotune.tensor.evaluate import evaluate

Run = Callable[..., np.ndarray[Any, Any]]


def one_op(op: str, arrays: Sequence[np.ndarray[Any, Any]], **attrs: Any) -> Workload:
    inputs = tuple(WorkloadInput(TensorType(str(DType.of(a.dtype)), a.shape)) for a in arrays)
    return Workload(inputs, (WorkloadNode.make(op, tuple(range(len(arrays))), **attrs),), (len(arrays),))


@pytest.fixture(scope="session")
def run() -> Run:
    """run(op, arrays, precision=None, algorithm="direct", **attrs): the operator's value by `evaluate`.

    The definition goes through JSON on its way, so every operator's round trip is tested too.
    """

    def call(
        op: str, arrays: Sequence[np.ndarray[Any, Any]], precision: DType | None = None, algorithm: str = "direct",
        **attrs: Any,
    ) -> np.ndarray[Any, Any]:  # fmt: skip
        workload = one_op(op, arrays, **attrs)
        definition = compute_def(Workload.from_json(workload.to_json()), algorithm)
        again = ComputeDef.from_json(definition.to_json())
        assert again == definition
        assert again.key == definition.key
        (value,) = evaluate(again, {f"in{n}": a for n, a in enumerate(arrays)}, precision).values()
        (out,) = definition.output_tensors
        assert value.shape == out.shape
        assert precision is not None or DType.of(value.dtype) is out.dtype
        return value

    return call


@pytest.fixture(scope="session")
def reference() -> Run:
    """reference(op_type, arrays, opset=21, constants=(), **attrs): the first output of the ONNX operator."""

    def call(
        op_type: str, arrays: Sequence[np.ndarray[Any, Any]], opset: int = 21, **attrs: Any
    ) -> np.ndarray[Any, Any]:
        names = [f"x{n}" for n in range(len(arrays))]
        kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
        types = [helper.make_tensor_value_info(n, k, a.shape) for n, k, a in zip(names, kinds, arrays, strict=True)]
        node = helper.make_node(op_type, names, ["y"], **attrs)
        graph = helper.make_graph([node], "g", types, [onnx.ValueInfoProto(name="y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        (value,) = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
        return np.asarray(value)

    return call


@pytest.fixture(scope="session")
def same() -> Callable[..., None]:
    """same(ours, theirs): equal to the accuracy of the dtype, NaN and infinities included."""

    def check(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], tolerance: float | None = None) -> None:
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        limits = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 2e-5, np.dtype(np.float16): 4e-3}
        limits[np.dtype(ml_dtypes.bfloat16)] = 3e-2
        limit = tolerance if tolerance is not None else limits.get(ours.dtype)
        if limit is None:
            np.testing.assert_array_equal(ours, theirs)
        else:
            wide_ours, wide_theirs = ours.astype(np.float64), theirs.astype(np.float64)
            np.testing.assert_allclose(wide_ours, wide_theirs, rtol=limit, atol=limit)

    return check
