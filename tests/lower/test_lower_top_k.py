"""top_k by ranks, by insertion and by sorting, on what is hard for any: ties, extremes, NaN, order and its reverse."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.lower import lower, print_program
from autotune.runtime.function import KernelFunction
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, DType, Output, extern, placeholder
from autotune.tensor.evaluate import evaluate
from autotune.tensor.externs import Array
from tests.conftest import Right

RANKS, INSERTION, SORT, PICK = (19, 17), (200, 3), (200, 190), (1100, 250)
"""(elements, k) for which each way is taken."""


def top(n: int, k: int, dtype: str, largest: bool, rows: int = 3) -> Schedule:
    x = placeholder((rows, n), dtype, "in0")
    outputs = (Output("value", (k,), DType(dtype)), Output("index", (k,), DType.i64))
    return Schedule(ComputeDef.build([x], extern("top_k", [x], (rows,), outputs, k=k, largest=int(largest))))


def hard_rows(n: int, dtype: DType) -> Iterator[Array]:
    """Rows of three kinds at a time."""
    rng = np.random.default_rng(n)
    kind = dtype.numpy
    if dtype.is_float:
        special = np.asarray([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, -1.5, 1e-40], np.float64).astype(kind)
        few, numbers = special, rng.standard_normal(n).astype(kind)
    else:
        info = np.iinfo(kind)
        few = np.asarray([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 3], kind)
        numbers = rng.integers(info.min, info.max, n, kind, endpoint=True)
    in_order = np.sort(numbers)
    yield np.stack([rng.choice(few, n), np.full(n, few[0]), np.full(n, few[2])])
    yield np.stack([numbers, in_order, in_order[::-1]])
    yield np.stack([np.where(rng.uniform(size=n) < 0.9, few[0], numbers), rng.choice(few[-3:], n), numbers])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [d.value for d in DType if d is not DType.bool and not d.is_storage])
@pytest.mark.parametrize(("n", "k"), [RANKS, INSERTION, SORT, PICK])
def test_hard_rows(n: int, k: int, dtype: str, largest: bool) -> None:
    schedule = top(n, k, dtype, largest)
    target = Target.parse("native -num-cores=1")
    with KernelFunction(schedule.compute.inputs, build_kernel(schedule, target), target) as kernel:
        for x in hard_rows(n, DType(dtype)):
            expected = evaluate(schedule.compute, {"in0": x})
            value, index = kernel(x)
            np.testing.assert_array_equal(index, expected["index"])
            np.testing.assert_array_equal(value.view(np.uint8), expected["value"].view(np.uint8))


@pytest.mark.parametrize("shape", [RANKS, INSERTION, SORT, PICK, (1, 1), (8, 2), (8, 8), (33, 17), (64, 64), (31, 0)])
def test_all_threads(shape: tuple[int, int], right: Right) -> None:
    right(top(*shape, "f32", True, rows=5).split("value", "i0", 2).parallel("value", "i0.0"), special=True)


def test_which_way_is_taken() -> None:
    texts = [print_program(lower(top(n, k, "f32", True))) for n, k in (RANKS, INSERTION, SORT, PICK)]
    assert ["ranks" in text for text in texts] == [True, False, False, False]
    assert ["counts" in text for text in texts] == [False, False, True, True]
    assert ["leading" in text for text in texts] == [False, False, False, True]
