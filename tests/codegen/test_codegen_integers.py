"""Integer powers, remainders, shifts and bits as other types: compiled code agrees with the NumPy evaluation."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, compute_def
from autotune.runtime.function import KernelFunction
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import DType
from autotune.tensor.evaluate import evaluate

TARGET = Target.parse("native -num-cores=1")


def agree(op: str, arrays: list[np.ndarray[Any, Any]], **attrs: Any) -> None:
    """One vectorized kernel of the operator gives what evaluation gives, bit by bit."""
    inputs = tuple(WorkloadInput(TensorType(str(DType.of(a.dtype)), a.shape)) for a in arrays)
    workload = Workload(inputs, (WorkloadNode.make(op, tuple(range(len(arrays))), **attrs),), (len(arrays),))
    definition = compute_def(workload)
    wanted = evaluate(definition, {f"in{n}": a for n, a in enumerate(arrays)})["out0"]
    kernel = build_kernel(Schedule(definition).vectorize("out0", "i0"), TARGET)
    with KernelFunction(definition.inputs, kernel, TARGET) as fn:
        (got,) = fn(*arrays)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64"])
def test_powers(dtype: str) -> None:
    base = np.array([0, 1, 2, 3, 7, 10, 250 % 128, 5], dtype)
    exponent = np.array([0, 9, 63, 39, 22, 19, 2, 100], dtype)
    agree("pow", [base, exponent])
    if np.issubdtype(dtype, np.signedinteger):
        agree("pow", [-base, exponent])
        agree("pow", [np.array([1, -1, -1, 2, -2, 9, 1, -1], dtype), np.array([-3, -3, -4, -1, -1, -2, 0, 5], dtype)])


@pytest.mark.parametrize("fmod", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64", "float32", "float64", "float16"])
def test_remainders(dtype: str, fmod: bool) -> None:
    a, b = np.array([7, -7, 7, -7, 0, 6, 100, 1]), np.array([3, 3, -3, -3, -5, 2, 7, 9])
    if dtype.startswith("u"):
        a, b = np.abs(a), np.abs(b)
    agree("mod", [a.astype(dtype), b.astype(dtype)], fmod=fmod)
    if dtype.startswith("float"):
        special = np.array([np.inf, 5.5, -0.0, 3e-6, -5.5, 1.0, 1e4, -1e4]).astype(dtype)
        agree("mod", [special, np.array([2, np.inf, 3, 1e-7, 0.1, -np.inf, 0.3, 7]).astype(dtype)], fmod=fmod)


@pytest.mark.parametrize("direction", ["left", "right"])
def test_shifts(direction: str) -> None:
    agree("bit_shift", [np.arange(8, dtype=np.uint8) + 120, np.arange(8, dtype=np.uint8)], direction=direction)


@pytest.mark.parametrize(
    ("source", "to"),
    [(np.float32, "u32"), (np.int64, "f64"), (np.float16, "i16"), (np.uint16, "bf16"), (ml_dtypes.bfloat16, "f16"),
     (np.bool_, "u8"), (np.int8, "u8")],
)  # fmt: skip
def test_bits(source: Any, to: str) -> None:
    agree("bit_cast", [np.array([0, 1, 3, 5, 90, 100, 17, 1]).astype(source)], to=to)
