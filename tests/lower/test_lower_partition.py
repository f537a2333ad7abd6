"""Loop partitioning: interior without guards, then a tail of as few rounds as need one."""

from __future__ import annotations

from autotune.lower import lower, print_program
from autotune.schedule import Schedule
from autotune.tensor import ComputeDef, compute, placeholder


def rows(extent: int, tile: int, block: int) -> Schedule:
    """A copy of a vector in tiles of tiles, whose inner loop is written out."""
    x = placeholder((extent,), name="in0")
    y = compute((extent,), lambda i: x[i], name="out0")
    s = Schedule(ComputeDef.build([x], [y])).split("out0", "i", tile).split("out0", "i.0", block)
    return s.unroll("out0", "i.1")


def test_inner_loops_are_cut_again_in_the_last_round_of_outer_ones() -> None:
    text = print_program(lower(rows(61, 6, 4).partition("out0", "i.0.0").partition("out0", "i.0.1")))
    assert "if" not in text.replace("prefetch", "")
    assert "for out0.i.0.0 in 0..2" in text  # 48 elements
    assert "for out0.i.0.1 in 0..2" in text  # 12 more in whole tiles, and one that is left


def test_shared_loops_are_cut_too_and_know_their_only_round() -> None:
    text = print_program(
        lower(rows(61, 6, 4).partition("out0", "i.0.0").partition("out0", "i.0.1").parallel("out0", "i.0.0"))
    )
    assert "parallel for out0.i.0.0 in 0..2" in text
    assert "parallel for out0.i.0.0 in 2..3" in text
    assert "if" not in text


def test_without_partition_guards_stay() -> None:
    assert "if" in print_program(lower(rows(61, 6, 4)))
