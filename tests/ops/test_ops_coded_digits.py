"""Products with coded weights in digits: as exact as sums of floats, for activations of any size."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import WorkloadError
from autotune.ops import compute_def
from autotune.ops.coded_digits import DIGITS, MOST, WIDEST, part_of
from autotune.ops.registry import fewer_multiplications
from autotune.ops.workload import Workload
from autotune.tensor import DType
from autotune.tensor.evaluate import evaluate
from autotune.tensor.layout import Array
from tests.search_spaces.coded_cases import coded

CASES = [("i4", 32, ""), ("u4", 32, "f32"), ("i4", 16, "u8"), ("i2", 16, ""), ("u2", 64, "u8"), ("u4", 256, "")]


def given(workload: Workload, a: Array, seed: int = 0) -> dict[str, Array]:
    rng, found = np.random.default_rng(seed), {"in0": a}
    for t in compute_def(workload).inputs[1:]:
        high = 1 << (32 if t.dtype is DType.u32 else 3)
        drawn = rng.integers(0, high, t.shape).astype(t.dtype.numpy)
        found[t.name] = rng.uniform(0.5, 2, t.shape).astype(np.float32) if t.dtype is DType.f32 else drawn
    return found


def errors(workload: Workload, inputs: dict[str, Array]) -> tuple[float, float]:
    """Of digits and of floats, each by the largest result."""
    right = evaluate(compute_def(workload), inputs, DType.f64)["out0"]
    found = [evaluate(compute_def(workload, x), inputs)["out0"] for x in ("digits", "direct")]
    digits, floats = (float(np.abs(x - right).max() / np.abs(right).max()) for x in found)
    return digits, floats


@pytest.mark.parametrize("depth", [96, 90])
@pytest.mark.parametrize(("form", "block", "zero"), CASES)
def test_they_are_as_exact_as_floats(form: str, block: int, zero: str, depth: int) -> None:
    workload = coded(3, 7, depth, block, form, zero=zero)
    a = np.random.default_rng(1).standard_normal((3, depth)).astype(np.float32)
    digits, floats = errors(workload, given(workload, a))
    assert max(digits, floats) < 6 * 2.0**-24


@pytest.mark.parametrize("form", ["i4", "u2"])
def test_each_product_is_within_the_bound(form: str) -> None:
    """Whatever else is in a block: 1.25 units of its largest activation, for each weight."""
    workload, rng = coded(4, 9, 64, 32, form), np.random.default_rng(2)
    a = (rng.standard_normal((4, 64)) * 10 ** rng.uniform(-6, 6, (4, 64))).astype(np.float32)
    inputs = given(workload, a)
    right = evaluate(compute_def(workload), inputs, DType.f64)["out0"]
    found = evaluate(compute_def(workload, "digits"), inputs, DType.f64)["out0"]
    ones = given(workload, np.eye(64, dtype=np.float32)[:, :])
    weight = np.abs(evaluate(compute_def(coded(64, 9, 64, 32, form)), {**ones, "in0": np.eye(64, dtype=np.float32)},
                             DType.f64)["out0"])  # fmt: skip
    unit = np.abs(a).reshape(4, 2, 32).max(2) / MOST
    assert (np.abs(found - right) <= 1.25 * np.repeat(unit, 32, 1) @ weight).all()


@pytest.mark.parametrize("scale", [0.0, 1e-44, 1e-38, 1e-30, 1e30])
def test_activations_of_any_size(scale: float) -> None:
    workload = coded(2, 5, 64, 32, "i4")
    a = (np.random.default_rng(3).standard_normal((2, 64)) * scale).astype(np.float32)
    inputs = given(workload, a)
    right = evaluate(compute_def(workload), inputs, DType.f64)["out0"]
    found = evaluate(compute_def(workload, "digits"), inputs)["out0"]
    assert np.abs(found - right).max() <= 1e-6 * np.abs(right).max() + 64 * 8 * 2 * 2.0**-125


def test_the_largest_digit_is_no_byte_too_large() -> None:
    """Roundings of the reciprocal do not carry the largest activation beyond three digits."""
    workload = coded(400, 1, 16, 16, "u4")
    a = np.zeros((400, 16), np.float32)
    a[:, 3] = np.random.default_rng(4).uniform(0.5, 4, 400) * np.where(np.arange(400) % 2, 1, -1)
    digits, _ = errors(workload, given(workload, a))
    assert digits < 2.0**-22


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_none_in_its_row(bad: float) -> None:
    workload = coded(2, 5, 64, 32, "i4")
    a = np.random.default_rng(5).standard_normal((2, 64)).astype(np.float32)
    a[1, 40] = bad
    found = evaluate(compute_def(workload, "digits"), given(workload, a))["out0"]
    assert np.isfinite(found[0]).all() and np.isnan(found[1]).all()


def test_what_shares_a_unit() -> None:
    assert part_of("i4", 32, 24) == 32 and part_of("i2", WIDEST, 3) == WIDEST
    assert part_of("i4", 768, 1) == 256 and part_of("i4", 520, 1) == 104  # a scale per column
    assert part_of("i4", 512, 2) is None  # would have two units
    assert part_of("nf4", 64, 2) is None and part_of("f4e2m1", 32, 2) is None and part_of("i8", 32, 2) is None


def test_of_what_there_are_no_digits() -> None:
    with pytest.raises(WorkloadError, match="no digits for codes of nf4 in 2 blocks of 32"):
        compute_def(coded(1, 5, 64, 32, "nf4"), "digits")
    assert fewer_multiplications(coded(1, 5, 64, 32, "nf4")).get(None) is None


def test_three_instructions_for_four_products() -> None:
    assert fewer_multiplications(coded(2, 16, 64, 32, "i4")).get(None) == 2 * 16 * 64 * DIGITS // 4
    assert fewer_multiplications(coded(2, 16, 64, 32, "i4"), strict_fp=True).get(None) is None
