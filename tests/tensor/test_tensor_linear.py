"""Linear forms: conditions on quotients as conditions on what is divided, and bounds of indices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Var, cast
from autotune.tensor.linear import Linear, Mod, clamp, low_bits, to_linear, undivided

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


def test_narrow_and_clamped_integers_have_bounds() -> None:
    """As indices they need no test of their own where a tensor is that long."""
    byte, word, bits = Var("byte", DType.u8), Var("word", DType.i32), Var("bits", DType.u32)
    assert to_linear(cast(DType.i64, byte), {}).range({}) == (0, 255)
    assert to_linear(low_bits(bits, 16), {}).range({}) == (0, 15)
    assert to_linear(clamp(cast(DType.i64, word), 9), {}).range({}) == (0, 9)
    assert to_linear(cast(DType.i64, word), {}).range({})[0] < 0


def test_a_sum_of_products_is_what_adding_one_after_the_other_gives() -> None:
    """The order of the terms, too: that of instructions follows from it."""
    x, y, z = (Linear.var(name) for name in "xyz")
    parts = [(x + 2, 3), (y * 2 + x * -1, 3), (z + 1, 0), (x * 4 + z, 1), (Linear(7), 2)]
    one_by_one = Linear()
    for form, factor in parts:
        one_by_one = one_by_one + form * factor
    found = Linear.combined(parts)
    assert found == one_by_one and list(found.terms.items()) == list(one_by_one.terms.items())
    assert Linear.combined([]) == Linear()


def test_a_rest_whose_quotient_is_known_has_tight_bounds() -> None:
    rest = Linear(0, {Mod(Linear.var("i") + 9, 8): 1})
    assert rest.range({"i": (0, 3)}) == (1, 4) and rest.range({"i": (5, 8)}) == (0, 7)
