"""Sums in registers start from a bias that is added to them, where that saves additions and changes nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.lower import lower, print_program
from autotune.lower.partial_sums import most_terms
from autotune.schedule import Schedule
from autotune.schedule.state import LOCAL, REGISTER
from autotune.target import Target
from autotune.tensor import ComputeDef, cast, compute, compute_many, placeholder, reduce_axis, sum_
from autotune.tensor.expr import Expr, binary
from autotune.tensor.rounding import TERMS
from autotune.tensor.stage import Tensor
from tests.property.kernel_check import check

HERE = Target.parse("native -num-cores=1")
ROWS = 6


def product(terms: int = 8, after: str = "relu", constant: bool = True) -> ComputeDef:
    """A matrix (ROWS x terms) times one (terms x 16), and what is made of it and a bias (16)."""
    a, b = placeholder((ROWS, terms), "f32", "in0"), placeholder((terms, 16), "f32", "in1")
    bias = placeholder((16,), "f32", "in2", constant=constant)
    other = placeholder((ROWS, 16), "f32", "in3")
    k = reduce_axis(terms, "k")
    total = compute((ROWS, 16), lambda i, j: sum_(a[i, k] * b[k, j], k), name="total")

    def made(y: Tensor, i: Expr, j: Expr) -> Expr:
        forms = {
            "relu": lambda: binary("max", y[i, j] + bias[j], 0.0),
            "gate": lambda: (bias[j] + y[i, j]) * binary("max", bias[j] + y[i, j], 0.0),
            "row": lambda: y[i, j] + bias[j] + other[i, j],
            "twice": lambda: y[i, j] + bias[j] + bias[j],
            "scaled": lambda: y[i, j] * bias[j] + bias[j],
            "both": lambda: (y[i, j] + bias[j]) * y[i, j],
            "two": lambda: (y[i, j] + bias[j]) * (y[i, j] + other[i, j]),
            "other": lambda: y[i, j] + other[i, j],
        }
        return forms[after]()

    out = compute((ROWS, 16), lambda i, j: made(total, i, j), name="out0")
    inputs = [a, b, bias, *([other] if after in ("row", "two", "other") else [])]
    return ComputeDef.build(inputs, [out])


def in_tiles(definition: ComputeDef, rows: int = 3, scope: str = REGISTER, cut: bool = False) -> Schedule:
    """Of so many rows and all columns."""
    s = Schedule(definition).split("out0", "i", rows)
    s = s.partition("out0", "i.0") if cut else s
    s = s.compute_at("total", "out0", "i.0", scope).reorder("total", "k", "i", "j")
    for stage, row in (("out0", "i.1"), ("total", "i")):
        s = s.unroll(stage, row).vectorize(stage, "j")
    return s


def nest(schedule: Schedule) -> str:
    return print_program(lower(schedule))


def starts(text: str) -> list[str]:
    return [line.split(" = ")[1] for line in text.splitlines() if line.strip().startswith("total[") and " = " in line]


def test_a_sum_starts_from_its_bias() -> None:
    text = nest(in_tiles(product()))
    assert starts(text) == ["in2[total.j]"]
    assert "max(total[out0.i.1, out0.j], 0.0)" in text


def test_it_may_be_used_twice_and_added_to_more() -> None:
    gate = nest(in_tiles(product(after="gate")))
    assert starts(gate) == ["in2[total.j]"]
    assert "total[out0.i.1, out0.j] * max(total[out0.i.1, out0.j], 0.0)" in gate
    row = nest(in_tiles(product(after="row")))
    assert starts(row) == ["in2[total.j]"]
    assert "= (total[out0.i.1, out0.j] + in3[" in row
    twice = nest(in_tiles(product(after="twice")))
    assert "= (total[out0.i.1, out0.j] + in2[out0.j])" in twice


@pytest.mark.parametrize("after", ["scaled", "both", "two", "other"])
def test_sums_of_which_something_else_is_made_start_from_zero(after: str) -> None:
    assert starts(nest(in_tiles(product(after=after)))) == ["0.0"]


def test_whole_numbers_do_too() -> None:
    a, b = placeholder((ROWS, 8), "u8", "in0"), placeholder((8, 16), "i8", "in1")
    bias, k = placeholder((16,), "i32", "in2", constant=True), reduce_axis(8, "k")
    total = compute((ROWS, 16), lambda i, j: sum_(cast("i32", a[i, k]) * cast("i32", b[k, j]), k), name="total")
    out = compute((ROWS, 16), lambda i, j: cast("f32", total[i, j] + bias[j]), name="out0")
    s = in_tiles(ComputeDef.build([a, b, bias], [out]))
    assert starts(nest(s)) == ["in2[total.j]"]
    assert check(s, HERE) is None


def test_sums_that_would_wait_or_save_nothing_start_from_zero() -> None:
    assert starts(nest(in_tiles(product(constant=False)))) == ["0.0"]
    assert starts(nest(in_tiles(product(), rows=1))) == ["0.0"]
    assert starts(nest(in_tiles(product(), scope=LOCAL))) == ["0.0"]


def test_a_sum_that_two_look_at_starts_from_zero() -> None:
    a, b, bias = (placeholder(d, "f32", f"in{n}", n == 2) for n, d in enumerate([(ROWS, 8), (8, 16), (16,)]))
    k = reduce_axis(8, "k")
    total = compute((ROWS, 16), lambda i, j: sum_(a[i, k] * b[k, j], k), name="total")
    first = compute((ROWS, 16), lambda i, j: total[i, j] + bias[j], name="first")
    out = compute((ROWS, 16), lambda i, j: first[i, j] * total[i, j], name="out0")
    s = Schedule(ComputeDef.build([a, b, bias], [out])).split("out0", "i", 3)
    s = s.compute_at("first", "out0", "i.0", REGISTER).compute_at("total", "out0", "i.0", REGISTER)
    s = s.reorder("total", "k", "i", "j")
    for stage, row in (("out0", "i.1"), ("first", "i"), ("total", "i")):
        s = s.unroll(stage, row).vectorize(stage, "j")
    assert starts(nest(s)) == ["0.0"]
    assert check(s, HERE) is None


def test_a_sum_that_is_an_output_of_its_own_starts_from_zero() -> None:
    a, b, bias = (placeholder(d, "f32", f"in{n}", n == 2) for n, d in enumerate([(ROWS, 8), (8, 16), (16,)]))
    k = reduce_axis(8, "k")
    total = compute((ROWS, 16), lambda i, j: sum_(a[i, k] * b[k, j], k), name="total")
    outs = compute_many((ROWS, 16), lambda i, j: (total[i, j] + bias[j], total[i, j]), ("out0", "out1"))
    s = in_tiles(ComputeDef.build([a, b, bias], outs))
    assert starts(nest(s)) == ["0.0"]
    assert check(s, HERE) is None


def test_a_last_tile_of_fewer_rows_starts_from_it_too() -> None:
    text = nest(in_tiles(product(), rows=4, cut=True))
    assert starts(text) == ["in2[total.j]"] * 2


def test_of_a_long_sum_the_first_part_starts_from_it() -> None:
    text = nest(in_tiles(product(most_terms(TERMS) + 1)))
    assert starts(text) == ["in2[total.j]", "0.0"]


@settings(max_examples=40, deadline=None)
@given(
    terms=st.sampled_from([1, 2, 7, 300, most_terms(TERMS) + 5, 4 * TERMS]), rows=st.integers(1, ROWS),
    after=st.sampled_from(["relu", "gate", "row", "twice", "scaled", "both", "two", "other"]),
    cut=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_whatever_is_made_of_sums_is_right(terms: int, rows: int, cut: bool, after: str, seed: int) -> None:
    assert check(in_tiles(product(terms, after), rows, cut=cut), HERE, seed) is None
