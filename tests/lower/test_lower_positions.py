"""Positions in conditions and addresses: decided, cut at, and put together again."""

from __future__ import annotations

from autotune.codegen.emit import emit
from autotune.lower import lower, print_program
from autotune.lower.bounds import least
from autotune.schedule import Schedule
from autotune.tensor import ComputeDef, compute, placeholder, reduce_axis, sum_
from autotune.tensor.expr import read, select
from autotune.tensor.linear import Linear


def test_quotient_and_remainder_join() -> None:
    x = Linear.var("i") * 16 + Linear.var("j")
    inner, outer = x.floormod(28, {}), x.floordiv(28, {})
    assert (outer * 28 + inner).joined() == x
    assert (outer * 448 + inner * 16 + 5).joined() == x * 16 + 5
    assert (outer * 3).joined() == outer * 3


def test_a_fact_about_one_quotient_bounds_another() -> None:
    ranges = {"f": (0, 129), "c": (0, 3)}
    row = Linear.var("f").floordiv(5, {})
    fact = row * -4 - Linear.var("c") + 3  # 4 * (f // 5) + c <= 3
    assert least(Linear.var("f").floordiv(20, {}) * -1, ranges, (fact,)) == 0
    assert least(Linear.var("f").floordiv(2, {}) * -1, ranges, (fact,)) < 0


def test_a_fused_loop_over_whole_rows_is_one_address() -> None:
    x = placeholder((6, 7), name="x")
    y = compute((6, 7), lambda i, j: x[i, j] * 2.0, name="y")
    s = Schedule(ComputeDef.build([x], [y])).fuse("y", "i", "j").split("y", "i*j", 16).vectorize("y", "i*j.1")
    text = emit(lower(s), 512)
    assert "masked.load.v16f32" in text
    assert "insertelement <16 x float>" not in text.replace("insertelement <16 x float> poison, float %", "splat")


def test_parts_of_a_concatenation_get_loops_of_their_own() -> None:
    a, b = placeholder((8, 4), name="a"), placeholder((5, 4), name="b")

    def joined(i, j):  # type: ignore[no-untyped-def]
        return select(i < 8, read(a, (i, j), when=i < 8), read(b, (i - 8, j), when=i >= 8))

    s = Schedule(ComputeDef.build([a, b], [compute((13, 4), joined, name="c")])).partition("c", "i")
    text = print_program(lower(s))
    assert "for c.i in 0..8:" in text and "for c.i in 8..13:" in text
    assert "select" not in text and " if " not in text


def test_a_register_tile_is_not_stored_through_masks() -> None:
    x, w = placeholder((3, 20), name="x"), placeholder((3,), name="w")
    k = reduce_axis(3, "k")
    y = compute((20,), lambda i: sum_(x[k, i] * w[k], k), name="y")
    s = Schedule(ComputeDef.build([x, w], [y])).cache_write("y").split("y", "i", 16).vectorize("y", "i.1")
    s = s.compute_at("y.c", "y", "i.0", "register").reorder("y.c", "k", "i").vectorize("y.c", "i")
    text = print_program(lower(s))
    assert "y.c[y.c.i] +=" in text
    tile = text.splitlines()
    at = next(n for n, line in enumerate(tile) if "y.c[y.c.i] +=" in line)
    assert "if " not in tile[at - 1]  # no guard around the store
    assert "w[y.c.k]" in tile[at] and "w[y.c.k] if" not in tile[at]
    assert tile[at].count(" if ") == 1  # but one around the load that needs it
