"""Traffic between caches, beside what can be counted by hand."""

from __future__ import annotations

import pytest

from autotune.cost_model.traffic import Traffic
from autotune.lower.ir import LOCAL, OPERAND, REGISTER, Buffer, For, Load, Stmt, Store
from autotune.tensor.dtype import DType
from autotune.tensor.linear import Linear

KIB = 1024
LEFT, RIGHT = (Buffer(name, DType.f32, (64, KIB), OPERAND) for name in ("left", "right"))
SUM = Buffer("sum", DType.f32, (1,), REGISTER)
I, J = Linear.var("i"), Linear.var("j")


def summed(*places: tuple[Buffer, Linear]) -> Stmt:
    """For each of 64 turns of i, all 1024 of j."""
    body = [Store(((SUM, (Linear(),)),), (Load(buffer, (row, J)),), "sum") for buffer, row in places]
    return For("i", 0, 64, "", (For("j", 0, KIB, "", tuple(body)),))


@pytest.mark.parametrize(("size", "missed"), [(2 * KIB, 64 * 4), (8 * KIB, 4)])
def test_what_fits_stays_from_turn_to_turn(size: int, missed: int) -> None:
    nest = summed((LEFT, Linear()), (RIGHT, I))  # a row of one again and again, all rows of the other
    assert Traffic([nest], [[nest]]).missed(size + 4 * KIB, ()) == [missed * KIB + 64 * 4 * KIB]


def test_where_there_is_room_for_all_only_what_is_cold_comes() -> None:
    nest = summed((LEFT, I), (RIGHT, I))
    assert Traffic([nest], [[nest]]).missed(1024 * KIB, ()) == [0]
    assert Traffic([nest], [[nest]]).missed(1024 * KIB, {"right"}) == [256 * KIB]


def test_what_one_nest_leaves_in_the_cache_is_there_for_the_next() -> None:
    scratch = Buffer("scratch", DType.f32, (KIB,), LOCAL)
    make = For("j", 0, KIB, "", (Store(((scratch, (J,)),), (Load(LEFT, (I, J)),)),))
    use = For("j", 0, KIB, "", (Store(((RIGHT, (I, J)),), (Load(scratch, (J,)),)),))
    body = [For("i", 0, 64, "", (make, use))]
    assert Traffic(body, [[make], [use]]).missed(16 * KIB, ()) == [260 * KIB, 256 * KIB]
    assert Traffic(body, [[make], [use]]).missed(4 * KIB, ()) == [64 * 8 * KIB, 64 * 8 * KIB]
