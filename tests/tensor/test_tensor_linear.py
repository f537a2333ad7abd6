"""Conditions on quotients as conditions on what is divided."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autotune.tensor.linear import Linear, undivided

X = Linear.var("x")


def value(form: Linear, x: int) -> int:
    return form.substitute({"x": Linear(x)}, {}).const


@given(k=st.integers(-3, 3).filter(bool), q=st.integers(2, 5), b=st.integers(-9, 9), c=st.integers(-9, 9))
def test_a_condition_on_a_quotient(k: int, q: int, b: int, c: int) -> None:
    condition = (X + b).floordiv(q, {}) * k + c
    plain = undivided(condition)
    assert set(plain.terms) <= {"x"}
    assert all((value(condition, x) >= 0) == (value(plain, x) >= 0) for x in range(-30, 30))


def test_what_is_more_than_one_quotient_stays() -> None:
    both = X.floordiv(2, {}) + Linear.var("y")
    assert undivided(both) is both
    assert undivided(X) == X
