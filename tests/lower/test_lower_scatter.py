"""Extern stages that write at run-time positions, the determinant and coupled probabilities, compiled: right, in order,
and never outside."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.lower import lower, print_program
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.schedule import Schedule
from autotune.search_spaces.library.nests import Options
from autotune.search_spaces.operators.generic import generic_schedule
from autotune.target import Target
from tests.conftest import Right


def schedule(op: str, *operands: tuple[str, tuple[int, ...]], **attrs: Any) -> Schedule:
    inputs = tuple(WorkloadInput(TensorType(dtype, shape)) for dtype, shape in operands)
    node = WorkloadNode.make(op, tuple(range(len(inputs))), **attrs)
    return generic_schedule(
        Workload(inputs, (node,), (len(inputs),)), Target.parse("native -num-cores=2"), Options(), None
    )


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64"])
def test_scatter_elements(dtype: str, reduction: str, right: Right) -> None:
    """Indices are 0..7: beyond an axis of 5, several times for one element."""
    data, indices = (3, 5, 19), (3, 4, 17)
    operands = ((dtype, data), ("i64", indices), (dtype, indices))
    right(schedule("scatter_elements", *operands, axis=1, reduction=reduction))


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_scatter_nd(depth: int, right: Right) -> None:
    data = (5, 6, 37)
    operands = (("f32", data), ("i32", (2, 3, depth)), ("f32", (2, 3, *data[depth:])))
    right(schedule("scatter_nd", *operands, reduction="none"))


def test_bytes_as_indices_stay_inside(right: Right) -> None:
    """Eight-bit numbers of both signs, widened: most are out of range."""
    right(schedule("scatter_nd", ("f32", (4, 4)), ("i32", (9, 2)), ("f32", (9,)), reduction="add"))
    right(schedule("gather_elements", ("f32", (4, 4)), ("i64", (4, 4)), axis=1))


def test_rows_of_scatter_elements_are_shared_among_threads() -> None:
    operands = (("f32", (8, 5)), ("i64", (8, 4)), ("f32", (8, 4)))
    text = print_program(lower(schedule("scatter_elements", *operands, axis=1, reduction="none")))
    assert "parallel for" in text
    operands = (("f32", (8, 5)), ("i64", (7, 5)), ("f32", (7, 5)))
    assert "parallel" not in print_program(lower(schedule("scatter_elements", *operands, axis=0, reduction="none")))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((7, 4, 4), "f32"), ((1, 1), "f64"), ((2, 9, 9), "f16"), ((3, 16, 16), "f32"), ((2, 33, 33), "f32")],
)
def test_determinant(shape: tuple[int, ...], dtype: str, right: Right) -> None:
    right(schedule("determinant", (dtype, shape)))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((7, 4, 4), "f32"), ((1, 1), "f64"), ((2, 9, 9), "f16"), ((3, 8, 8), "f32"), ((2, 33, 33), "f32")],
)
def test_inverse(shape: tuple[int, ...], dtype: str, right: Right) -> None:
    right(schedule("inverse", (dtype, shape)))


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3, 2, 2), "f32"), ((2, 2, 5, 5), "f64"), ((9, 16, 16), "f32"), ((2, 19, 19), "f16")]
)
def test_coupled_probabilities(shape: tuple[int, ...], dtype: str, right: Right) -> None:
    right(schedule("coupled_probabilities", (dtype, shape)))
    right(schedule("coupled_probabilities", (dtype, shape)), special=True)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize(("axis", "shape"), [(1, (3, 5, 19)), (2, (2, 3, 9, 16)), (3, (1, 2, 3, 7))])
def test_tensor_scatter(mode: str, axis: int, shape: tuple[int, ...], right: Right) -> None:
    """Indices are 0..7: some rows lie beyond the cache, and are left out or go on at the front."""
    rows = (*shape[:axis], 2, *shape[axis + 1 :])
    operands = (("f32", shape), ("f32", rows), ("i64", shape[:1]))
    right(schedule("tensor_scatter", *operands, axis=axis, mode=mode))
