"""Instructions that loops execute, beside what can be counted by hand."""

from __future__ import annotations

import pytest

from autotune.cost_model.instructions import Instructions, counted
from autotune.lower.ir import LOCAL, OPERAND, REGISTER, TILE, Buffer, For, If, Load, Stmt, Store
from autotune.schedule.dot_products import TILE_STORE
from autotune.tensor.dtype import DType
from autotune.tensor.expr import binary, cast
from autotune.tensor.linear import Linear
from tests.targets import fixed

TARGET = fixed("x86 -mcpu=znver4 -num-cores=1")
RATE, LATENCY = 1.0, 4.0  # of its multiply-adds with vectors of 16
LEFT = Buffer("left", DType.f32, (64,), OPERAND)
RIGHT = Buffer("right", DType.f32, (64, 1024), OPERAND)
OUT = Buffer("out", DType.f32, (1024,), OPERAND)
I, U, V = Linear.var("i"), Linear.var("u"), Linear.var("v")


def loops(body: Stmt, *around: tuple[str, int, str]) -> tuple[Stmt, ...]:
    for var, extent, mark in reversed(around):
        body = For(var, 0, extent, mark, (body,))
    return (body,)


def product(tile: int, around: tuple[str, int, str] = ("i", 8, "")) -> Instructions:
    """`tile` vectors of sums: a number of `left` for all of them, a vector of `right` for each."""
    sums = Buffer("sums", DType.f32, (tile * 16,), REGISTER)
    value = binary("mul", Load(LEFT, (I,)), Load(RIGHT, (I, U * 16 + V)))
    body = Store(((sums, (U * 16 + V,)),), (value,), "sum")
    return counted(loops(body, around, ("u", tile, "unroll"), ("v", 16, "vectorize")), (), TARGET)


def test_a_step_of_a_register_tile() -> None:
    found = product(3)
    assert found == Instructions(8 * 3 / RATE, 8 * LATENCY, loads=8 * (1 + 3), stores=0.0)


def test_what_does_not_fit_the_registers_is_stored_and_loaded_again() -> None:
    assert product(30).stores == 0
    found = product(60)
    assert found.stores == pytest.approx(8 * 30)
    assert found.loads == pytest.approx(8 * (1 + 60) + 8 * 30)


@pytest.mark.parametrize(
    ("place", "loads"),
    [
        (V, 1),
        (V * 2, 2),
        (V * 64, 16),
        (Linear(3), 1),
        ((V + I * 16).floordiv(4, {"v": (0, 15), "i": (0, 7)}) * 4, 1),  # groups of four: one vector, in another order
        ((V + I * 16).floordiv(7, {"v": (0, 15), "i": (0, 7)}) * 16, 16),  # another order in every turn
    ],
)
def test_a_vector_is_as_many_loads_as_it_has_pieces(place: Linear, loads: int) -> None:
    source = Buffer("source", DType.f32, (1 << 20,), OPERAND)
    body = Store(((OUT, (I * 16 + V,)),), (Load(source, (place + I * 1024,)),))
    found = counted(loops(body, ("i", 8, ""), ("v", 16, "vectorize")), (), TARGET)
    assert (found.loads, found.stores) == (8 * loads, 8)


def test_what_moves_with_no_inner_loop_is_loaded_outside_of_it() -> None:
    body = Store(((OUT, (I * 16 + V,)),), (binary("add", Load(LEFT, (I,)), Load(OUT, (U * 16 + V,))),))
    found = counted(loops(body, ("i", 8, ""), ("u", 5, ""), ("v", 16, "vectorize")), (), TARGET)
    assert found.loads == 8 + 8 * 5


def test_conditions_on_positions_count_by_how_often_they_hold() -> None:
    body = If((I - 2,), loops(Store(((OUT, (V,)),), (Load(RIGHT, (I, V)),)), ("v", 16, "vectorize")))
    found = counted(loops(body, ("i", 8, "")), (), TARGET)
    assert (found.loads, found.arithmetic) == (6, 8 * 2 / RATE)  # a comparison and a jump in each turn
    assert counted(loops(body, ("i", 8, "unroll")), (), TARGET).arithmetic == 0  # known while compiling


@pytest.mark.parametrize("rows", [14, 3])
def test_an_instruction_of_tiles_takes_its_rows_and_no_sum_waits(rows: int) -> None:
    target = fixed("x86 -mcpu=sapphirerapids -num-cores=1")
    pipe = target.core.pipe("tile.bf16", 512)
    assert pipe is not None
    left = Buffer("left", DType.bf16, (4, 5, 16, 32), OPERAND)
    right = Buffer("right", DType.bf16, (4, 16, 16, 2), OPERAND)
    tiles = Buffer("tiles", DType.f32, (5, 16, 16), TILE)
    r, g, n = Linear.var("r"), Linear.var("g"), Linear.var("n")
    terms = (Load(left, (I, U, r, g * 2 + n)), Load(right, (I, g, V, n)))
    value = binary("mul", *(cast(DType.f32, term) for term in terms))
    body = Store(((tiles, (U, r, V)),), (value,), "sum")
    deep = ("v", 16, "vectorize"), ("g", 16, ""), ("n", 2, "")
    found = counted(loops(body, ("i", 4, ""), ("u", 5, "unroll"), ("r", rows, "tdpbf16ps"), *deep), (), target)
    cycles = max(rows / pipe.per_cycle, pipe.latency)
    assert found == Instructions(4 * 5 * cycles, 0.0, loads=4 * (5 * rows + 16), stores=0.0)

    copy = Store(((Buffer("out", DType.f32, (5, 16, 16), LOCAL), (U, r, V)),), (Load(tiles, (U, r, V)),))
    copied = counted(loops(copy, ("u", 5, "unroll"), ("r", rows, TILE_STORE), deep[0]), (), target)
    assert copied == Instructions(stores=5.0 * rows)
