"""Quasi-affine algebra against plain integers: every simplification is an equality on the whole box."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.lower.bounds import least, least_by_cases
from autotune.tensor.expr import Const, Expr, Var, binary, unary
from autotune.tensor.linear import Div, Linear, Mod, nonnegatives, to_linear

Values = Mapping[str, int]
NAMES = ("x", "y", "z")
BOX = st.fixed_dictionaries(
    {n: st.tuples(st.integers(-4, 4), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1])) for n in NAMES}
)
SMALL = st.integers(-40, 40)
DIVISORS = st.sampled_from((1, 2, 3, 4, 5, 6, 8, 12, 16))


def exprs() -> st.SearchStrategy[Expr]:
    """Index expressions: sums, multiples, quotients and remainders of x, y and z."""
    leaves: st.SearchStrategy[Expr] = st.one_of(
        st.sampled_from(NAMES).map(Var), st.integers(-20, 20).map(lambda n: to_const(n))
    )

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.tuples(st.sampled_from(("add", "sub")), inner, inner).map(lambda t: binary(*t)),
            st.tuples(inner, st.integers(-9, 9)).map(lambda t: binary("mul", t[0], t[1])),
            st.tuples(st.sampled_from(("floordiv", "floormod")), inner, DIVISORS).map(lambda t: binary(*t)),
            inner.map(lambda e: unary("neg", e)),
        )

    return st.recursive(leaves, grow, max_leaves=6)


def to_const(n: int) -> Expr:
    return binary("add", Var("x"), n) if n % 5 == 0 else binary("mul", Var("y"), n)


def run(e: Expr, at: Values) -> int:
    """The value of an index expression, by Python."""
    if isinstance(e, Var):
        return at[e.name]
    if isinstance(e, Const):
        return int(e.value)
    parts = [run(c, at) for c in (getattr(e, "a", None), getattr(e, "b", None)) if c is not None]
    a, b = parts[0], parts[-1]
    op = getattr(e, "op", "")
    return {"add": a + b, "sub": a - b, "mul": a * b, "neg": -a, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b,
            "eq": a == b, "floordiv": a // b if b else 0, "floormod": a % b if b else 0}[op]  # fmt: skip


def value(form: Linear, at: Values) -> int:
    """The value of a quasi-affine form, by its definition."""
    total = form.const
    for term, c in form.terms.items():
        if isinstance(term, str):
            total += c * at[term]
        elif isinstance(term, Div):
            total += c * (value(term.arg, at) // term.divisor)
        else:
            assert isinstance(term, Mod)
            total += c * (value(term.arg, at) % term.divisor)
    return total


def points(box: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    spans = [range(box[n][0], box[n][1] + 1) for n in NAMES]
    return [dict(zip(NAMES, p)) for p in itertools.product(*spans)]


@settings(max_examples=150, deadline=None)
@given(exprs(), BOX)
def test_forms_equal_their_expression_and_stay_in_their_range(e: Expr, box: dict[str, tuple[int, int]]) -> None:
    form = to_linear(e, box)
    lo, hi = form.range(box)
    for at in points(box):
        assert value(form, at) == run(e, at)
        assert lo <= run(e, at) <= hi


@settings(max_examples=150, deadline=None)
@given(exprs(), DIVISORS, BOX)
def test_division(e: Expr, divisor: int, box: dict[str, tuple[int, int]]) -> None:
    form = to_linear(e, box)
    quotient, rest = form.floordiv(divisor, box), form.floormod(divisor, box)
    for at in points(box):
        assert value(quotient, at) == value(form, at) // divisor
        assert value(rest, at) == value(form, at) % divisor


@settings(max_examples=100, deadline=None)
@given(exprs(), exprs(), BOX, st.integers(1, 9))
def test_substitution_under_new_ranges(e: Expr, put: Expr, box: dict[str, tuple[int, int]], factor: int) -> None:
    # x = factor * y + z, as a split does: its range follows from those of y and z.
    new = to_linear(put, {**box, "x": (0, 0)}) if factor == 1 else Linear(0, {"y": factor, "z": 1})
    new = new.substitute({"x": Linear()}, box)
    wide = {**box, "x": new.range(box)}
    form = to_linear(e, wide).substitute({"x": new}, box)
    for at in points({**box, "x": (0, 0)}):
        assert value(form, at) == run(e, {**at, "x": value(new, at)})


@settings(max_examples=100, deadline=None)
@given(exprs(), exprs(), st.sampled_from(("lt", "le", "gt", "ge", "eq")), BOX)
def test_comparisons_as_nonnegative_forms(a: Expr, b: Expr, op: str, box: dict[str, tuple[int, int]]) -> None:
    e = binary(op, a, b)
    forms = nonnegatives(e, box)
    assert forms is not None
    for at in points(box):
        assert all(value(f, at) >= 0 for f in forms) == bool(run(e, at))


@settings(max_examples=150, deadline=None)
@given(exprs(), st.lists(exprs(), max_size=3), BOX)
def test_bounds_under_facts_hold(e: Expr, guards: list[Expr], box: dict[str, tuple[int, int]]) -> None:
    form, facts = to_linear(e, box), tuple(to_linear(g, box) for g in guards)
    bound, closer = least(form, box, facts), least_by_cases(form, box, facts)
    assert closer >= bound
    for at in points(box):
        if all(value(f, at) >= 0 for f in facts):
            assert value(form, at) >= closer


def test_bounds_use_the_guard_of_a_tail() -> None:
    # 8 * o + i <= 19 says that (8 * o + i) // 4 <= 4, though the ranges alone allow 5.
    whole = Linear(0, {"o": 8, "i": 1})
    box = {"o": (0, 2), "i": (0, 7)}
    room = whole.floordiv(4, box) * -1 + 4
    assert room.range(box)[0] < 0
    assert least(room, box, (whole * -1 + 19,)) == 0


def test_bounds_by_cases_know_that_quotients_of_one_variable_vary_together() -> None:
    box = {"p": (0, 2), "q": (0, 5)}
    p = Linear.var("p")
    form = (p * 2).floordiv(3, box) * 2 - p + Linear.var("q")
    assert least(form, box, ()) == -2
    assert least_by_cases(form, box, ()) == -1
    assert least_by_cases(form, box, (Linear.var("q") - 1,)) == 0
    wide = form + Linear.var("f").floordiv(10, {})
    assert least_by_cases(wide, {**box, "f": (0, 9999)}, ()) == -1
