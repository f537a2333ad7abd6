"""Long sums in registers are made of partial sums, whose rounding errors are those of fewer terms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.kernel import build_kernel
from autotune.lower import lower, print_program
from autotune.lower.partial_sums import most_terms
from autotune.measure.bench import Bench, TaskData
from autotune.measure.reference import Array, reference_of
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.schedule.state import LOCAL, REGISTER
from autotune.target import Target
from autotune.tensor import ComputeDef, compute, max_, placeholder, reduce_axis, sum_
from autotune.tensor.rounding import FEWEST, TERMS, terms_of_a_part
from tests.property.kernel_check import check

HERE = Target.parse("native -num-cores=1")
PARKED = "out0.c.parked"
MOST_TERMS = most_terms(TERMS)


def product(terms: int, dtype: str = "f32", fold: str = "sum", amplified: float = 1.0) -> ComputeDef:
    """A matrix (4 x terms) times one (terms x 16), whose errors are amplified so many times."""
    a, b = placeholder((4, terms), dtype, "in0"), placeholder((terms, 16), dtype, "in1")
    k = reduce_axis(terms, "k")
    reduced = {"sum": sum_, "max": max_}[fold]
    y = compute((4, 16), lambda i, j: reduced(a[i, k] * b[k, j], k), name="out0", amplified=amplified)
    return ComputeDef.build([a, b], [y])


def in_registers(definition: ComputeDef, unroll: int = 2, scope: str = REGISTER, partition: bool = False) -> Schedule:
    s = Schedule(definition).cache_write("out0").vectorize("out0", "j").compute_at("out0.c", "out0", "i", scope)
    s = s.split("out0.c", "k", unroll).reorder("out0.c", "i", "k.0", "k.1", "j")
    s = s.partition("out0.c", "k.0") if partition else s
    return s.unroll("out0.c", "k.1").vectorize("out0.c", "j")


def nest(schedule: Schedule) -> str:
    return print_program(lower(schedule))


def test_a_long_sum_is_cut_and_its_parts_are_added_in_memory() -> None:
    text = nest(in_registers(product(4 * TERMS)))
    assert f"local {PARKED}: f32[1, 16]" in text
    assert "for out0.c.k.0.part in 0..4" in text
    assert text.count("if out0.c.k.0.part - 1 >= 0") == 2
    assert f"for out0.c.k.0.term in 0..{TERMS // 2}" in text
    assert f"out0.c[0, out0.c.j] += {PARKED}[0, out0.c.j]" in text


@pytest.mark.parametrize(
    ("definition", "scope"),
    [
        (product(MOST_TERMS), REGISTER),
        (product(4 * TERMS, "i32"), REGISTER),
        (product(4 * TERMS, fold="max"), REGISTER),
        (product(4 * TERMS), LOCAL),
    ],
)
def test_short_sums_exact_ones_maxima_and_sums_in_memory_stay(definition: ComputeDef, scope: str) -> None:
    assert PARKED not in nest(in_registers(definition, scope=scope))


def test_parts_are_equally_long_where_that_leaves_them_about_as_long() -> None:
    text = nest(in_registers(product(2 * 3 * 5 * 7 * 11)))
    assert "for out0.c.k.0.part in 0..11" in text
    assert text.count("for out0.c.k.0") == 2, "the code of a term stands there once"
    ragged = nest(in_registers(product(2 * 1009)))
    assert f"for out0.c.k.0 in {1009 // (TERMS // 2) * (TERMS // 2)}..1009" in ragged


def test_a_single_part_with_a_rest_asks_for_nothing() -> None:
    text = nest(in_registers(product(2 * 211)))
    assert f"for out0.c.k.0 in 0..{TERMS // 2}" in text
    assert f"for out0.c.k.0 in {TERMS // 2}..211" in text
    assert "if" not in text


def test_loops_inside_are_cut_where_a_round_of_the_outer_one_is_long_already() -> None:
    a, b = placeholder((4, 3, 1000), "f32", "in0"), placeholder((3, 1000, 16), "f32", "in1")
    r, k = reduce_axis(3, "r"), reduce_axis(1000, "k")
    y = compute((4, 16), lambda i, j: sum_(a[i, r, k] * b[r, k, j], (r, k)), name="out0")
    s = Schedule(ComputeDef.build([a, b], [y])).cache_write("out0").vectorize("out0", "j")
    s = s.compute_at("out0.c", "out0", "i", REGISTER).reorder("out0.c", "i", "r", "k", "j").vectorize("out0.c", "j")
    text = nest(s)
    assert "for out0.c.r in 0..3" in text
    assert "for out0.c.k.part in 0..4" in text
    assert check(s, HERE) is None


@settings(max_examples=25, deadline=None)
@given(
    terms=st.integers(2, 3 * MOST_TERMS), unroll=st.sampled_from([1, 2, 3, 8]), partition=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_sums_of_any_length_are_right(terms: int, unroll: int, partition: bool, seed: int) -> None:
    assert check(in_registers(product(terms), min(unroll, terms), partition=partition), HERE, seed) is None


@settings(max_examples=15, deadline=None)
@given(terms=st.integers(2, 8 * FEWEST), unroll=st.sampled_from([1, 2, 3, 8]), seed=st.integers(0, 99))
def test_sums_whose_errors_are_amplified_are_right(terms: int, unroll: int, seed: int) -> None:
    assert check(in_registers(product(terms, amplified=20.0), min(unroll, terms)), HERE, seed) is None


def test_the_more_errors_are_amplified_the_shorter_are_the_parts() -> None:
    assert [terms_of_a_part(a) for a in (0.5, 3.0, 4.8, 20.6)] == [TERMS, TERMS, 100, FEWEST]
    text = nest(in_registers(product(4 * FEWEST, amplified=20.0)))
    assert "for out0.c.k.0.part in 1..4" in text
    assert ComputeDef.from_json(product(64, amplified=20.0).to_json()) == product(64, amplified=20.0)
    assert product(64, amplified=20.0) != product(64)


def test_errors_are_those_of_shorter_sums() -> None:
    """A register that sums up 16384 products in turn errs by 40 units; in parts of 256, by a sixth of that."""
    terms = 64 * TERMS
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((4, terms), (terms, 16)))
    task = TaskData(reference_of(product(terms), (a, b)))
    with Bench(build_kernel(in_registers(product(terms)), HERE), task, 1) as bench:
        bench.run(ThreadPool(1))
        ours = bench.logical_outputs()[0]
    one_by_one = np.zeros((4, 16), np.float32)
    for k in range(terms):
        one_by_one += a[:, k, None] * b[k]
    right = a.astype(np.float64) @ b.astype(np.float64)

    def error(found: Array) -> float:
        return float(np.sqrt(np.mean((found - right) ** 2)))

    assert 3 * error(ours) < error(one_by_one)
