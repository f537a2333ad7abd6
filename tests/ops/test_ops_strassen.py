"""Strassen's product: its tables, what it applies to, how many multiplications, and how much it errs."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import WorkloadError
from autotune.ops import compute_def, parse_workload
from autotune.ops.registry import fewer_multiplications, lookup_algorithm
from autotune.ops.strassen import A, B, C, amplification
from autotune.tensor import DType
from autotune.tensor.evaluate import evaluate


def test_tables_make_the_product_of_any_matrices() -> None:
    """Of matrices that do not commute: the products of quarters, as coefficients, are those of the definition."""
    found = np.einsum("cp,pa,pb->cab", np.array(C), np.array(A), np.array(B))
    right = np.zeros((4, 4, 4), int)
    for i, j, k in np.ndindex(2, 2, 2):
        right[2 * i + j, 2 * i + k, 2 * k + j] = 1
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("rows", [8, 9])
@pytest.mark.parametrize("text", ["matmul a={},64 b=64,32 trans_b=0", "matmul a=2,{},64 b=32,64 trans_b=1"])
def test_floats(text: str, rows: int) -> None:
    workload = parse_workload(text.format(rows))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(one.type.shape) for one in workload.inputs)
    found = evaluate(compute_def(workload, "strassen"), {"in0": a, "in1": b}, DType.f64)["out0"]
    np.testing.assert_allclose(found, a @ (b.T if "trans_b=1" in text else b), atol=1e-12)


@pytest.mark.parametrize("text", [
    "matmul a=9,512:u8 b=512,16:i8",
    "conv2d data=2,64,3,3:u8 weight=32,64,1,1:i8",
    "conv2d data=1,64,5,6:u8 weight=32,64,1,1:i8 stride=3,2",
    "conv3d data=1,64,2,3,2:i8 weight=32,64,1,1,1:u8",
])  # fmt: skip
def test_largest_bytes_are_exact(text: str) -> None:
    workload = parse_workload(text)
    arrays = {
        f"in{n}": np.full(one.type.shape, np.iinfo(DType(one.type.dtype).numpy).max, DType(one.type.dtype).numpy)
        for n, one in enumerate(workload.inputs)
    }
    exact, plain = (evaluate(compute_def(workload, name), arrays)["out0"] for name in ("strassen_exact", "direct"))
    np.testing.assert_array_equal(exact, plain)


def test_seven_products_for_eight() -> None:
    assert fewer_multiplications(parse_workload("matmul a=3,8,16 b=16,32"))[None] == 3 * 7 * 4 * 8 * 16
    assert fewer_multiplications(parse_workload("matmul a=8,16 b=16,32"), strict_fp=True) == {}
    assert fewer_multiplications(parse_workload("conv2d data=1,16,3,3:u8 weight=32,16,1,1:i8"), strict_fp=True) == {
        DType.i16: 7 * 5 * 8 * 16
    }
    assert fewer_multiplications(parse_workload("matmul a=8,16 b=var:16,32")) == {}, "a weight of the run"


@pytest.mark.parametrize(
    "text",
    [
        "matmul a=8,15 b=15,32",
        "matmul a=1,16 b=16,32",
        "matmul a=2,8,16 b=2,16,32",
        "conv2d data=1,16,3,3 weight=32,16,1,1 pad=1",
        "conv2d data=1,16,3,3 weight=32,16,3,3",
        "conv2d data=1,16,3,3 weight=32,8,1,1 groups=2",
    ],
)
def test_others_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(WorkloadError, match="strassen needs floats of 32 bits, two rows or pixels at least, and one"):
        compute_def(parse_workload(text), "strassen")


def test_rounding_errors_are_what_it_says_they_are() -> None:
    workload = parse_workload("matmul a=64,1024 b=1024,64")
    rng = np.random.default_rng(0)
    arrays = {f"in{n}": rng.standard_normal(one.type.shape, np.float32) for n, one in enumerate(workload.inputs)}
    right = evaluate(compute_def(workload), arrays, DType.f64)["out0"]
    errors = [
        float(np.sqrt(np.mean((evaluate(compute_def(workload, name), arrays)["out0"] - right) ** 2)))
        for name in ("strassen", "direct")
    ]
    assert amplification() == pytest.approx(3**0.5) == lookup_algorithm("matmul", "strassen").error
    assert errors[0] < 1.5 * amplification() * errors[1]
