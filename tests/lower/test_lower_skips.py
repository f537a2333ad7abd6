"""Terms that padding makes neutral are skipped, where that is known for all lanes at once."""

from __future__ import annotations

import math
from collections.abc import Callable

from autotune.lower import lower, print_program
from autotune.schedule import Schedule
from autotune.tensor import ComputeDef
from autotune.tensor.expr import Expr, cast, read
from autotune.tensor.stage import Reduction, Tensor, compute, max_, placeholder, reduce_axis, sum_

X, W = placeholder((9,), "f32", "x"), placeholder((3,), "f32", "w")
K = reduce_axis(3, "k")


def term(body: Callable[[Expr], Reduction], inputs: tuple[Tensor, ...] = (X,), vectorize: bool = False) -> list[str]:
    """The line that folds a term in, and the line before it."""
    schedule = Schedule(ComputeDef.build(inputs, [compute((8,), body, "y")], ["y"]))
    if vectorize:
        schedule = schedule.reorder("y", "k", "i").vectorize("y", "i")
    lines = print_program(lower(schedule)).splitlines()
    at = next(n for n, line in enumerate(lines) if "+=" in line or "max=" in line)
    return [lines[at].strip(), lines[at - 1].strip()]


def padded(i: Expr, otherwise: float = 0.0) -> Expr:
    return read(X, (i + K.var - 1,), when=i + K.var >= 1, otherwise=otherwise)


def test_products_with_padding() -> None:
    line, before = term(lambda i: sum_(padded(i) * W[K], K), (X, W))
    assert before == "if y.i + y.k - 1 >= 0:"
    assert "if" not in line


def test_the_padding_of_a_maximum() -> None:
    assert "if" not in term(lambda i: max_(padded(i, -math.inf), K))[0]
    assert "else 0.0" in term(lambda i: max_(padded(i, 0.0), K))[0]  # zero may be the largest


def test_what_padding_is_part_of() -> None:
    assert "if" not in term(lambda i: sum_(cast("f64", padded(i)), K))[0]
    assert "else 0.0" in term(lambda i: sum_(padded(i) + 1, K))[0]


def test_lanes_that_differ_stay_at_the_loads() -> None:
    assert "else 0.0" in term(lambda i: sum_(padded(i), K), vectorize=True)[0]
