"""Gathers whose elements lie in a few rows: rows are loaded whole and turned in registers, or interleaved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.codegen.kernel import generate
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.schedule import Schedule
from autotune.search_spaces.library.nests import Options
from autotune.search_spaces.operators.generic import generic_schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, Expr, compute, placeholder, read
from tests.conftest import Right

SIZES = {"f64": 8, "f32": 16, "bf16": 16, "f16": 16, "i64": 8, "u8": 32, "bool": 32}


def turned(rows: int, columns: int, dtype: str, lanes: int, turns: int) -> Schedule:
    """y[j, i] = x[i, j], with i in a vector and j unrolled."""
    x = placeholder((rows, columns), dtype, "in0")
    y = compute((columns, rows), lambda j, i: x[i, j], name="y")
    s = Schedule(ComputeDef.build([x], [y])).split("y", "i", lanes).split("y", "j", turns)
    s = s.reorder("y", "j.0", "i.0", "j.1", "i.1").unroll("y", "j.1").vectorize("y", "i.1")
    return s.partition("y", "j.0").partition("y", "i.0")


def ir(s: Schedule) -> str:
    return generate(s, Target.parse("x86 -mcpu=znver4")).ir


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("tails", [False, True])
def test_tiles(dtype: str, tails: bool, right: Right) -> None:
    lanes = SIZES[dtype]
    s = turned(3 * lanes - 5 * tails, 70 if tails else 64, dtype, lanes, 32)
    assert "insertelement" not in ir(s) or tails
    right(s, special=True)


def test_rows_that_alias_are_loaded_whole(right: Right) -> None:
    """Rows 4096 bytes apart: a second pass over them would find them gone from the first cache."""
    s = turned(32, 1024, "f32", 16, 16)
    assert ir(s).count("load <16 x float>") == 16
    assert ir(turned(32, 1000, "f32", 16, 8)).count("load <4 x float>") == 32
    right(s)


def test_sixteen_bit_floats_are_moved_as_they_are() -> None:
    text = ir(turned(64, 64, "bf16", 16, 16))  # no rounding: neither a test for NaN nor an addition
    assert "fcmp" not in text
    assert "32767" not in text


def test_turns_that_touch_less_memory_are_gathered(right: Right) -> None:
    """A read predicated by the unrolled loop, and a guard that depends on it: rows may end inside the block."""
    x = placeholder((16, 6), "f32", "in0")
    y = compute((8, 16), lambda j, i: read(x, (i, j), when=j < 6, otherwise=1.0), name="y")
    s = Schedule(ComputeDef.build([x], [y])).unroll("y", "j").vectorize("y", "i")
    assert "insertelement" in ir(s)
    right(s)
    right(turned(16, 21, "f32", 16, 16).unroll("y", "j.0"))


@pytest.mark.parametrize(
    ("index", "shuffled"),
    [
        (lambda n: (n % 2, n // 2), True),
        (lambda n: (n % 4, n // 4), True),
        (lambda n: (n % 8, n // 8 + 1), True),
        (lambda n: (n % 2, n // 2 * 2), False),
        (lambda n: (n % 8, n % 8 * -1 + 7), False),
    ],
)
def test_interleaved_rows(index: Callable[[Expr], tuple[Expr, Expr]], shuffled: bool, right: Right) -> None:
    x = placeholder((3, 8, 37), "f32", "in0")
    y = compute((3, 16), lambda i, n: x[(i, *index(n))] * 2.0, name="y")
    s = Schedule(ComputeDef.build([x], [y])).vectorize("y", "n")
    assert ("insertelement" in ir(s)) != shuffled
    right(s)


@pytest.mark.parametrize("dtype", ["f32", "u8", "bf16"])
@pytest.mark.parametrize("first", [0, 3])
def test_interleaved_rows_that_do_not_all_exist(dtype: str, first: int, right: Right) -> None:
    """A missing plane, the border of a row, and whole rows of border, which only the run tells apart."""
    x = placeholder((3, 5, 21), dtype, "in0")

    def put(i: Expr, n: Expr) -> Expr:
        place = n // 4 - first
        inside = (n % 4 < 3) & (i >= 1) & (i < 6) & (place >= 0) & (place < 21)
        return read(x, (n % 4, i - 1, place), when=inside, otherwise=1)

    y = compute((7, 96), put, name="y")
    s = Schedule(ComputeDef.build([x], [y])).split("y", "n", 32).vectorize("y", "n.1").partition("y", "n.0")
    assert ", i64 31" not in ir(s), "no vector is put together lane by lane"
    right(s)


@pytest.mark.parametrize(
    ("shape", "perm"),
    [((2, 2, 5, 3, 8), (2, 3, 0, 4, 1)), ((3, 40, 70), (0, 2, 1)), ((2, 3, 37, 18), (0, 2, 3, 1))],
)
@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
def test_transposes_by_the_generic_schedule(
    shape: tuple[int, ...], perm: tuple[int, ...], dtype: str, right: Right
) -> None:
    node = WorkloadNode.make("transpose", (0,), perm=perm)
    workload = Workload((WorkloadInput(TensorType(dtype, shape)),), (node,), (1,))
    for target in ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2"):
        right(generic_schedule(workload, Target.parse(target), Options(), None), target=target)


def test_ragged_tiles_of_a_shared_loop_are_turned_too(right: Right) -> None:
    """No guard is left in the shared loop over tiles: nothing is gathered."""
    perm = WorkloadNode.make("transpose", (0,), perm=(1, 0))
    workload = Workload((WorkloadInput(TensorType("f32", (197, 203))),), (perm,), (1,))
    schedule = generic_schedule(workload, Target.parse("x86 -mcpu=znver4 -num-cores=2"), Options(), None)
    assert "insertelement <16 x float>" not in ir(schedule)
    right(schedule)
