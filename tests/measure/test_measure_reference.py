"""The reference is right, the tolerance lets rounding pass and nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.measure.failure import Failure
from autotune.measure.reference import (
    AS_THE_DEFINITION,
    Allowance,
    Array,
    Errors,
    Reference,
    compare,
    make_reference,
    reference_of,
    rounding_unit,
)
from autotune.ops import parse_workload
from autotune.ops.registry import compute_def
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.tensor import DType

HALVES = "cast data=24,64:bf16 to=f32 + cast data=64,40:bf16 to=f32 + matmul a=step1 b=step2 + cast to=bf16"
IN_HALVES = parse_workload(HALVES)


def matmul(k: int, dtype: str = "f32", clip: bool = False) -> Workload:
    sides = tuple(WorkloadInput(TensorType(dtype, shape)) for shape in ((24, k), (k, 40)))
    nodes = [WorkloadNode.make("matmul", (0, 1), trans_a=False, trans_b=False)]
    if clip:
        nodes.append(WorkloadNode.make("clip", (2,), min=0.0, max=6.0))
    return Workload(sides, tuple(nodes), (1 + len(nodes),))


def chain(*ops: str, dtype: str = "f32", shape: tuple[int, ...] = (16, 33)) -> Workload:
    nodes = tuple(WorkloadNode.make(op, (number,)) for number, op in enumerate(ops))
    return Workload((WorkloadInput(TensorType(dtype, shape)),), nodes, (len(nodes),))


def sequential(a: Array, b: Array) -> Array:
    """The least accurate order of a sum: one f32 accumulator, rounded after each product and each addition."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total += np.outer(a[:, k], b[k]).astype(np.float32)
    return total


@pytest.mark.parametrize("k", [1, 7, 576, 4608, 25088])
@pytest.mark.parametrize("clip", [False, True])
def test_any_order_of_summation_passes_and_a_lost_product_does_not(k: int, clip: bool) -> None:
    reference = make_reference(matmul(k, clip=clip))
    a, b = reference.inputs
    for order in (np.arange(k), np.arange(k)[::-1], np.random.default_rng(k).permutation(k)):
        total = sequential(a[:, order], b[order])
        got = np.clip(total, 0, 6) if clip else total
        assert isinstance(compare(reference, [got], AS_THE_DEFINITION, ""), Errors)
    lost = sequential(a[:, 1:], b[1:])
    failure = compare(reference, [np.clip(lost, 0, 6) if clip else lost], AS_THE_DEFINITION, "1 thread")
    assert isinstance(failure, Failure)
    assert failure.kind == "incorrect"
    assert "of 960 elements differ (1 thread)" in failure.message


def test_same_seed_same_reference_other_seed_another() -> None:
    first, again, other = (make_reference(matmul(5), seed) for seed in (1, 1, 2))
    assert all(np.array_equal(x, y) for x, y in zip(first.inputs, again.inputs, strict=True))
    assert not np.array_equal(first.inputs[0], other.inputs[0])
    assert first.outputs[0].dtype == np.float64
    np.testing.assert_allclose(first.outputs[0], first.inputs[0].astype(np.float64) @ first.inputs[1], rtol=1e-12)


def test_small_outputs_have_small_tolerances() -> None:
    """A softmax over many numbers: the tolerance follows the outputs, not the sums inside."""
    node = WorkloadNode.make("softmax", (0,), axis=1)
    reference = make_reference(Workload((WorkloadInput(TensorType("f32", (4, 4096))),), (node,), (1,)))
    assert 0 < reference.tolerances[0] < 1e-3 * float(reference.outputs[0].max())


def test_nan_and_infinity_must_be_where_the_reference_has_them() -> None:
    reference = make_reference(chain("log"))
    with np.errstate(invalid="ignore"):
        right = np.log(reference.inputs[0])
    assert np.isnan(right).any()
    assert isinstance(compare(reference, [right], AS_THE_DEFINITION, ""), Errors)
    for bad in (0.0, np.inf):
        wrong = np.where(np.isnan(right), np.float32(bad), right)
        assert isinstance(compare(reference, [wrong], AS_THE_DEFINITION, ""), Failure)
    assert isinstance(
        compare(reference, [np.where(right > 0, np.float32(np.nan), right)], AS_THE_DEFINITION, ""), Failure
    )


def test_what_overflows_in_the_kernels_type_is_infinite() -> None:
    big = Reference((), (np.array([1e300, 1.0]),), (1e-6,))
    assert isinstance(compare(big, [np.array([np.inf, 1.0], np.float32)], AS_THE_DEFINITION, ""), Errors)
    assert isinstance(compare(big, [np.array([1.0, 1.0], np.float32)], AS_THE_DEFINITION, ""), Failure)


def test_integers_are_compared_exactly() -> None:
    node = WorkloadNode.make("add", (0, 0))
    reference = make_reference(Workload((WorkloadInput(TensorType("i32", (6,))),), (node,), (1,)))
    right = reference.inputs[0] * 2
    assert compare(reference, [right], AS_THE_DEFINITION, "") == Errors(0.0, 0.0, 0.0)
    assert isinstance(compare(reference, [right + (np.arange(6) == 3)], AS_THE_DEFINITION, ""), Failure)


def test_errors_are_those_of_the_worst_output() -> None:
    reference = Reference((), (np.array([1.0, 4.0]), np.array([100.0])), (0.1, 10.0))
    errors = compare(reference, [np.array([1.0, 4.0625]), np.array([105.0])], AS_THE_DEFINITION, "")
    assert errors == Errors(5.0, 0.05, 10.0)


def test_each_stage_rounds_to_its_own_type() -> None:
    assert rounding_unit(compute_def(matmul(77))) == math.sqrt(77) * 2.0**-23
    assert rounding_unit(compute_def(chain("relu", "exp"))) == 2.0**-23
    assert rounding_unit(compute_def(IN_HALVES)) == 2.0**-7, "f32 adds up, and the result alone is rounded to bf16"


def test_a_lost_term_is_found_where_results_have_16_bits() -> None:
    reference = make_reference(IN_HALVES)
    a, b = (x.astype(np.float64) for x in reference.inputs)
    narrow = (a @ b).astype(np.float32).astype(DType.bf16.numpy)
    assert isinstance(compare(reference, [narrow], AS_THE_DEFINITION, ""), Errors)
    lost = (a[:, 8:] @ b[8:]).astype(np.float32).astype(DType.bf16.numpy)
    assert isinstance(compare(reference, [lost], AS_THE_DEFINITION, ""), Failure)


def test_an_algorithm_may_err_more_by_a_stated_factor() -> None:
    reference = make_reference(matmul(64))
    off = (reference.outputs[0] + 3 * reference.tolerances[0]).astype(np.float32)
    assert isinstance(compare(reference, [off], AS_THE_DEFINITION, ""), Failure)
    accepted = compare(reference, [off], Allowance(4.0), "")
    assert isinstance(accepted, Errors)
    assert math.isclose(accepted.tolerance, 4 * reference.tolerances[0])


def test_an_algorithm_that_rounds_may_err_by_what_it_rounds_to() -> None:
    reference = make_reference(matmul(64))
    scale = float(np.abs(reference.outputs[0]).max())
    off = (reference.outputs[0] + 3 * 2.0**-7 * scale).astype(np.float32)
    assert isinstance(compare(reference, [off], AS_THE_DEFINITION, ""), Failure)
    assert isinstance(compare(reference, [off], Allowance(1.0, 2.0**-7), ""), Errors)
    assert isinstance(compare(reference, [off], Allowance(1.0, 2.0**-8), ""), Failure)


def test_float64_with_cancellation_is_allowed_what_its_terms_round_by() -> None:
    """The sum is about 3e4, the bias takes nearly all of it away: the result's own scale says too little."""
    workload = parse_workload("matmul a=1,31 b=31,1 dtype=f64 + bias")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((1, 31)) * 100, rng.standard_normal((31, 1)) * 100
    bias = -(a @ b).reshape(1) + 0.001
    reference = reference_of(compute_def(workload), (a, b, bias))
    (allowed,) = reference.tolerances
    largest = float(np.abs(a * b.T).max())
    assert 2.0**-53 * largest < allowed < 1e-6 * largest
