"""top_k against NumPy: any axis, both directions, ties, dtypes, no elements; both results from one stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.errors import WorkloadError
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, compute_def
from autotune.tensor import DType
from autotune.tensor.evaluate import evaluate


def top_k(shape: tuple[int, ...], dtype: str = "f32", results: tuple[int, ...] = (0, 1), **attrs: Any) -> Workload:
    given = {"axis": -1, "k": 2, "largest": True, "sorted": True} | attrs
    nodes = tuple(WorkloadNode.make("top_k", (0,), result=n, **given) for n in results)
    return Workload((WorkloadInput(TensorType(dtype, shape)),), nodes, tuple(range(1, len(nodes) + 1)))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "i8", "u8", "i64"])
def test_values_and_places(axis: int, largest: bool, dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 4, (3, 5, 4)).astype(DType(dtype).numpy)
    definition = compute_def(top_k(x.shape, dtype, axis=axis, k=3, largest=largest))
    assert sum(stage.extern is not None for stage in definition.stages) == 1
    got = evaluate(definition, {"in0": x})
    order = np.argsort(-x.astype(int) if largest else x, axis=axis, kind="stable").take(range(3), axis)
    np.testing.assert_array_equal(got["out1"], order)
    np.testing.assert_array_equal(got["out0"], np.take_along_axis(x, order, axis))


def test_nan_comes_last_both_ways() -> None:
    x = np.array([[1, np.nan, 3]], np.float32)
    for largest, expected in ((True, [2, 0]), (False, [0, 2])):
        got = evaluate(compute_def(top_k((1, 3), largest=largest, results=(1,))), {"in0": x})
        np.testing.assert_array_equal(got["out0"], [expected])


def test_none_of_none() -> None:
    got = evaluate(compute_def(top_k((2, 0), k=0)), {"in0": np.zeros((2, 0), np.float32)})
    assert got["out0"].shape == got["out1"].shape == (2, 0)


def test_refusals() -> None:
    with pytest.raises(WorkloadError, match="more than the 3 elements"):
        compute_def(top_k((2, 3), k=4))
    with pytest.raises(WorkloadError, match="result=2"):
        compute_def(top_k((2, 3), results=(2,)))
