"""What may be read or written beyond the data, and what may not."""

from __future__ import annotations

import pytest

from autotune.errors import LoweringError
from autotune.lower import lower
from autotune.schedule import Schedule
from autotune.tensor import ComputeDef, Layout, compute, maximum, placeholder, read, reduce_axis, sum_
from tests.conftest import Right


def windows(n: int) -> Schedule:
    """Sums of two neighbours of a computed row; beyond the row lies zero."""
    x = placeholder((6, n), name="in0")
    y = compute((6, n), lambda i, j: x[i, j] * 2.0 + 1.0, name="y")
    k = reduce_axis(2, "k")
    z = compute((6, n), lambda i, j: sum_(read(y, (i, j + k.var), j + k.var < n), k), name="z")
    return Schedule(ComputeDef.build([x], [z]))


def test_block_padding_of_scratch_is_not_zero(right: Right) -> None:
    right(windows(8).compute_at("y", "z", "i").layout("y", Layout.blocked(2, [(1, 3)])))
    right(windows(8).layout("y", Layout.blocked(2, [(1, 3)])))


def test_block_padding_of_an_input_is_zero(right: Right) -> None:
    x = placeholder((6, 8), name="in0")
    k = reduce_axis(2, "k")
    z = compute((6, 8), lambda i, j: sum_(read(x, (i, j + k.var), j + k.var < 8), k), name="z")
    right(Schedule(ComputeDef.build([x], [z])).layout("in0", Layout.blocked(2, [(1, 3)])))


def test_pad_of_a_region_that_has_no_room() -> None:
    x = placeholder((6, 17), name="in0")
    y = compute((6, 17), lambda i, j: x[i, j] + 1.0, name="y")
    s = Schedule(ComputeDef.build([x], [compute((2, 11), lambda i, j: maximum(y[i + 1, j + 1], 0.0), name="z")]))
    s = s.compute_at("y", "z", "j", "register").pad("y", "j").split("y", "j", 2)
    with pytest.raises(LoweringError, match="pad y.j: y would be accessed at .* in 0..1, outside its memory 0..0"):
        lower(s)


def test_pad_refuses_reads_beyond_memory() -> None:
    x = placeholder((6, 20), name="in0")
    y = compute((6, 20), lambda i, j: x[i, j] + 1.0, name="y")
    s = Schedule(ComputeDef.build([x], [y])).layout("y", Layout.blocked(2, [(1, 8)])).split("y", "j", 8).pad("y", "j")
    with pytest.raises(LoweringError, match="in0 would be accessed at .* in 0..23, outside its memory 0..19"):
        lower(s)
    lower(s.layout("in0", Layout.blocked(2, [(1, 8)])))


def test_indices_read_at_tails_are_guarded(right: Right) -> None:
    x, where = placeholder((33, 15), name="in0"), placeholder((33, 15), "i64", name="in1")
    y = compute((33, 15), lambda i, j: x[where[i, j] % 33, j], name="y")
    s = Schedule(ComputeDef.build([x, where], [y])).cache_write("y").split("y", "i", 5)
    right(s.compute_at("y.c", "y", "i.1", "register").vectorize("y.c", "i").unroll("y", "i.1"))


def test_the_verifier_looks_into_indices() -> None:
    x, where = placeholder((8,), name="in0"), placeholder((4,), "i64", name="in1")
    y = compute((8,), lambda i: x[where[i]], name="y")
    with pytest.raises(LoweringError, match="in1.y.i. may leave 0..3"):
        lower(Schedule(ComputeDef.build([x, where], [y])))
