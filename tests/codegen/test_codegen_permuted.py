"""Lanes that lie in two vectors are shuffled from these; others are gathered one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel, generate
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.reference import reference_of
from autotune.measure.verify import verify
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, DType, Expr, compute, placeholder, read
from autotune.tensor.expr import Table

LANES = 8


def vectorized(index: Callable[[Expr], Expr], extent: int, rows: int = 3) -> Schedule:
    """y[i, j] = x[i, index(j)] + 1, with all of j in one vector."""
    x = placeholder((rows, extent), name="in0")
    y = compute((rows, LANES), lambda i, j: x[i, index(j)] + 1.0, name="y")
    s = Schedule(ComputeDef.build([x], [y]))
    return s.vectorize("y", s.state.stage("y").stage.axes[1].name)


@pytest.mark.parametrize(
    ("index", "extent", "shuffled"),
    [
        (lambda j: j // 2, 8, True),
        (lambda j: j // 4 * 4 + 1, 8, True),
        (lambda j: j * -1 + 7, 8, True),
        (lambda j: j * 2, 16, True),
        (lambda j: j // 2, 4, True),  # rows of half a vector
        (lambda j: j // 2 + 2, 7, True),  # rows that start anywhere
        (lambda j: j * 2, 17, True),  # in three vectors at multiples, in two that overlap
        (lambda j: j * 2 + 1, 17, True),
        (lambda j: j * 3, 24, False),  # three vectors
    ],
)
def test_result_and_instructions(index: Callable[[Expr], Expr], extent: int, shuffled: bool) -> None:
    s, target = vectorized(index, extent), Target.parse("native")
    ir = generate(s, target).ir
    assert ("shufflevector" in ir) == shuffled
    assert ("insertelement" in ir) != shuffled
    rng = np.random.default_rng(0)
    inputs = tuple(rng.standard_normal(t.shape).astype(np.float32) for t in s.compute.inputs)
    with Bench(build_kernel(s, target), TaskData(reference_of(s.compute, inputs)), 1) as bench:
        assert not isinstance(verify(bench, [ThreadPool(1)]), Failure)


@pytest.mark.parametrize("extent", [12, 13, 15, 16])
def test_lanes_outside_of_the_image_read_the_padding(extent: int) -> None:
    """Every second element from the one before the row on: the first lane and the last ones are padding."""
    x = placeholder((3, extent), name="in0")
    y = compute(
        (3, LANES),
        lambda i, j: read(x, (i, j * 2 - 1), when=(j * 2 >= 1) & (j * 2 - 1 < extent), otherwise=-5.0) + 1.0,
        name="y",
    )
    s = Schedule(ComputeDef.build([x], [y]))
    s, target = s.vectorize("y", s.state.stage("y").stage.axes[1].name), Target.parse("native")
    assert "insertelement" not in generate(s, target).ir
    inputs = (np.random.default_rng(0).standard_normal((3, extent)).astype(np.float32),)
    with Bench(build_kernel(s, target), TaskData(reference_of(s.compute, inputs)), 1) as bench:
        assert not isinstance(verify(bench, [ThreadPool(1)]), Failure)


def test_lanes_in_pairs_outside_of_the_image_read_the_padding() -> None:
    """Where conditions divide the lane: the first element is beside the row, the others come twice."""
    x = placeholder((3, 4), name="in0")
    y = compute(
        (3, LANES),
        lambda i, j: read(x, (i, (j + 1) // 2 - 1), when=(j + 1) // 2 - 1 >= 0, otherwise=-5.0) + 1.0,
        name="y",
    )
    s = Schedule(ComputeDef.build([x], [y]))
    s, target = s.vectorize("y", s.state.stage("y").stage.axes[1].name), Target.parse("native")
    assert "insertelement" not in generate(s, target).ir
    inputs = (np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32),)
    with Bench(build_kernel(s, target), TaskData(reference_of(s.compute, inputs)), 1) as bench:
        assert not isinstance(verify(bench, [ThreadPool(1)]), Failure)


@pytest.mark.parametrize("unrolled", [True, False])
def test_places_from_a_table_are_shuffled_where_they_are_known(unrolled: bool) -> None:
    places = tuple(float(n * 9 // 23) for n in range(3 * LANES))
    x = placeholder((5, 10), name="in0")
    y = compute(
        (5, 3 * LANES), lambda i, j: x[i, Table("places", places, (len(places),), (j,), DType.i64)] * 2.0, name="y"
    )
    s = Schedule(ComputeDef.build([x], [y]))
    axis = s.state.stage("y").stage.axes[1].name
    s, target = s.split("y", axis, LANES).vectorize("y", f"{axis}.1"), Target.parse("native")
    s = s.unroll("y", f"{axis}.0") if unrolled else s
    assert ("insertelement" in generate(s, target).ir) != unrolled
    inputs = (np.random.default_rng(0).standard_normal((5, 10)).astype(np.float32),)
    with Bench(build_kernel(s, target), TaskData(reference_of(s.compute, inputs)), 1) as bench:
        assert not isinstance(verify(bench, [ThreadPool(1)]), Failure)
