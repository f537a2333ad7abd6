"""Products in pieces: what pieces hold, how much the sum errs, what it applies to, and what it counts."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import WorkloadError
from autotune.ops import compute_def, parse_workload
from autotune.ops.pieces import LEFT, NAME, RIGHT
from autotune.ops.registry import fewer_multiplications
from autotune.tensor import DType
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.evaluate import evaluate

CASES = [
    "matmul a=9,96 b=96,16",
    "matmul a=3,96,9 b=32,96 trans_a=1 trans_b=1",
    "matmul a=2,5,40 b=const:2,40,8",
    "matmul a=1,5,40 b=const:3,40,8",
    "conv2d data=2,24,5,6 weight=16,24,3,3 pad=1,0,0,2 stride=2,1 dilation=1,2",
    "conv1d data=1,32,9 weight=8,32,3 pad=1",
    "conv3d data=1,17,3,4,2 weight=8,17,1,2,1",
]


@pytest.mark.parametrize("text", CASES)
def test_sums_are_those_of_the_definition(text: str) -> None:
    """To the errors of f32: with two pieces they would be off by 4e-6."""
    workload = parse_workload(text)
    rng = np.random.default_rng(0)
    arrays = {f"in{n}": rng.standard_normal(one.type.shape).astype(np.float32) for n, one in enumerate(workload.inputs)}
    found = evaluate(compute_def(workload, NAME), arrays)["out0"]
    expected = evaluate(compute_def(workload), arrays, DType.f64)["out0"]
    assert found.dtype == np.float32
    assert np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)) < 5e-7


def test_pieces_of_a_number_add_up_to_it() -> None:
    definition = compute_def(parse_workload("matmul a=4,40 b=40,8"), NAME)
    rng = np.random.default_rng(0)
    for name, source, shape in ((LEFT, "in0", (4, 40)), (RIGHT, "in1", (40, 8))):
        stage = definition.stage(name)
        numbers = (rng.standard_normal(shape) * np.exp2(rng.integers(-60, 60, shape))).astype(np.float32)
        inputs = tuple(t for t in definition.inputs if t.name == source)
        (found,) = evaluate(ComputeDef(inputs, (stage,), (name,)), {source: numbers}).values()
        total = found.astype(np.float64).sum(0)
        known, behind = (total[:, :40], total[:, 40:]) if name == LEFT else (total[:40], total[40:])
        np.testing.assert_array_equal(known, numbers)
        assert not behind.any(), "groups are filled up with zeros"
        assert found.shape == ((3, 4, 64) if name == LEFT else (3, 64, 8))


def test_six_products_for_one() -> None:
    assert fewer_multiplications(parse_workload("matmul a=3,8,16 b=16,32"))[DType.bf16] == 6 * 3 * 8 * 16 * 32
    assert fewer_multiplications(parse_workload("conv2d data=1,16,4,4 weight=8,16,2,2"))[DType.bf16] == 6 * 9 * 64 * 8
    assert DType.bf16 not in fewer_multiplications(parse_workload("matmul a=8,16 b=16,32"), strict_fp=True)
    assert DType.bf16 not in fewer_multiplications(parse_workload("matmul a=8,16 b=var:16,32")), "a weight of the run"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("matmul a=8,16:bf16 b=16,8:bf16", "pieces needs matrices of f32, got bf16"),
        ("matmul a=16 b=16,8", "pieces needs matrices of f32"),
        (
            "conv2d data=1,16,4,4 weight=16,1,3,3 groups=16",
            "pieces needs f32 and no groups, got f32, f32 and 16 groups",
        ),
    ],
)
def test_others_are_refused(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        compute_def(parse_workload(text), NAME)
