"""Moves of rows by native code are those of NumPy, whatever the places are; one that is wrong stops them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.compiler.compile import compile_graph
from autotune.graph.builder import GraphBuilder
from autotune.graph.ir import Array, Output, Value
from autotune.runtime.address import address
from autotune.runtime.executor import Executor
from autotune.runtime.form import ALIGN
from autotune.runtime.moves import Cell, Fit, Fits, Moves
from autotune.runtime.threads import ThreadPool
from autotune.target import Target
from autotune.tensor.aligned import aligned_empty

TARGET = Target.parse("native -num-cores=1")
DTYPES = [np.bool_, np.int8, np.uint16, np.float16, np.int32, np.float32, np.int64, np.float64, np.complex64]
ADDED = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}
FAR = [2**31, -(2**31) - 1, 2**62, -(2**62), 2**63 - 1, -(2**63)]


class Bench:
    """Moves whose cells hold arrays and numbers."""

    def __init__(self) -> None:
        self.moves = Moves()
        self._keep: list[Array] = []

    def place(self, array: Array) -> Cell:
        assert array.flags.c_contiguous
        self._keep.append(array)
        cell = self.moves.cell()
        cell.value = address(array)
        return cell

    def rows(self, how: str, target: Array, source: Array, places: Array, of: Array) -> bool:
        """Run one move; `of` is the array that has the places."""
        rank = places.shape[-1]
        count, nbytes = len(places.reshape(-1, rank)), of.itemsize * int(np.prod(of.shape[rank:], dtype=np.int64))
        number = self.moves.number
        extents = [number(extent) for extent in of.shape[:rank]]
        to, of_rows, at = (self.place(array) for array in (target, source, places))
        self.moves.rows(how, to, of_rows, at, number(count), number(nbytes), extents)
        return self.moves.run()


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> Array:
    array: Array = rng.integers(-100, 100, shape).astype(dtype)
    return array


def placed(rng: np.random.Generator, shape: tuple[int, ...], extents: tuple[int, ...], outside: int | None) -> Array:
    """Places of rows, some counted from the end, many of them the same; one may be outside."""
    columns = [rng.integers(-extent, max(extent, 1 - extent), shape) for extent in extents]
    places = np.stack(columns, -1) if columns else np.zeros((*shape, 0), np.int64)
    if outside is not None and places.size:
        n = int(rng.integers(places.size))
        extent = extents[n % len(extents)]
        places.reshape(-1)[n] = [extent, -extent - 1, *FAR][outside % (2 + len(FAR))]
    return places


cases = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "extents": st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
        "width": st.lists(st.integers(0, 4), max_size=2).map(tuple),
        "shape": st.one_of(st.just(()), st.tuples(st.sampled_from([0, 1, 2, 7, 300])), st.just((2, 3))),
        "outside": st.one_of(st.none(), st.integers(0, 7)),
    }
)


@settings(max_examples=150, deadline=None)
@given(case=cases, dtype=st.sampled_from(DTYPES))
def test_gathered(case: dict[str, Any], dtype: type) -> None:
    rng = np.random.default_rng(case["seed"])
    source = drawn(rng, case["extents"] + case["width"], dtype)
    places = placed(rng, case["shape"], case["extents"], case["outside"])
    target = np.zeros(case["shape"] + case["width"], dtype)
    done = Bench().rows("gather", target, source, places, source)
    assert done == (case["outside"] is None or not places.size)
    if done:
        np.testing.assert_array_equal(target, source[tuple(np.moveaxis(places, -1, 0))])


@settings(max_examples=150, deadline=None)
@given(case=cases, how=st.sampled_from(["scatter", *ADDED]), dtype=st.sampled_from(DTYPES))
def test_scattered(case: dict[str, Any], how: str, dtype: type) -> None:
    """Of rows that go to the same place the last one stays, or all are added, one after the other."""
    rng = np.random.default_rng(case["seed"])
    dtype = ADDED.get(how, dtype)
    target = drawn(rng, case["extents"] + case["width"], dtype)
    places = placed(rng, case["shape"], case["extents"], case["outside"])
    source = drawn(rng, case["shape"] + case["width"], dtype)
    wanted, at = target.copy(), tuple(np.moveaxis(places, -1, 0))
    done = Bench().rows(how if how == "scatter" else f"scatter_add_{how}", target, source, places, target)
    assert done == (case["outside"] is None or not places.size)
    if not done:
        return
    if how != "scatter":
        np.add.at(wanted, at, source)
    else:
        for n in np.ndindex(case["shape"]):
            wanted[tuple(place[n] for place in at)] = source[n]
    np.testing.assert_array_equal(target, wanted)


def test_integers_that_grow_too_large_begin_anew() -> None:
    for dtype in (np.int32, np.int64):
        most = np.iinfo(dtype).max
        target, source = np.full((1, 1), most, dtype), np.asarray([[1], [2]], dtype)
        name = f"scatter_add_i{8 * target.itemsize}"
        assert Bench().rows(name, target, source, np.zeros((2, 1), np.int64), target)
        assert target[0, 0] == np.iinfo(dtype).min + 2


def test_a_place_that_is_outside_lets_no_later_move_begin() -> None:
    bench, source = Bench(), np.arange(4.0)
    first, second = np.zeros(1), np.zeros(1)
    assert not bench.rows("gather", first, source, np.asarray([[4]]), source)
    assert not bench.rows("gather", second, source, np.asarray([[1]]), source)
    assert second[0] == 0


@settings(max_examples=50, deadline=None)
@given(rows=st.integers(0, 9), columns=st.integers(0, 9), dtype=st.sampled_from([np.int64, np.float64, np.complex64]))
def test_transposed_and_copied(rows: int, columns: int, dtype: type) -> None:
    bench = Bench()
    source: Array = np.arange(rows * columns).astype(dtype).reshape(rows, columns)
    target: Array = np.zeros((columns, rows), dtype)
    again: Array = np.zeros((rows, columns), dtype)
    number, cell = bench.moves.number, bench.place(source)
    bench.moves.transpose(bench.place(target), cell, number(rows), number(columns))
    nbytes = bench.moves.times(bench.moves.times(number(rows), number(columns)), number(source.itemsize))
    bench.moves.copy(bench.place(again), cell, nbytes)
    assert bench.moves.run()
    assert nbytes.value == source.nbytes
    np.testing.assert_array_equal(target, source.T)
    np.testing.assert_array_equal(again, source)


def test_numbers_and_addresses_may_be_others_in_each_run() -> None:
    moves, arrays = Moves(), [np.arange(n, dtype=np.int64) for n in (3, 0, 300)]
    target, source, count = moves.cell(), moves.cell(), moves.cell()
    moves.copy(target, source, moves.times(count, moves.number(8)))
    for array in arrays:
        found = np.full(301, -1)
        target.value, source.value, count.value = address(found), address(array), len(array)
        assert moves.run()
        np.testing.assert_array_equal(found, [*array, *[-1] * (301 - len(array))])


def test_no_cell_is_given_twice() -> None:
    moves = Moves()
    cells = [moves.cell() for _ in range(600)]
    for n, cell in enumerate(cells):
        cell.value = n
    assert [cell.value for cell in cells] == list(range(600))
    assert moves.number(7) is moves.number(7) and moves.number(7).value == 7
    assert Moves().run()  # of nothing


ROWS, WIDTH = 4, 3


def program() -> Executor:
    """Rows of a table, twice: the table is read where it lies, the places are padded, and are looked at."""
    g = GraphBuilder("looked up")
    table, places = g.input(Value("table", "f32", (5, WIDTH))), g.input(Value("places", "i64", (ROWS,)))
    g.check(g.emit("any_outside", (places,), low=(0,), high=(5,)), "outside")
    rows = g.emit("gather", (table, places), axis=0)
    return compile_graph(g.build([Output("y", g.emit("add", (rows, rows)))]), TARGET).executor


@pytest.fixture(scope="module")
def looked_up() -> Executor:
    return program()


class Lookup:
    """The program for up to `ROWS` places, among moves."""

    def __init__(self, executor: Executor) -> None:
        self.moves, self.pool = Moves(), executor.pool()
        assert self.moves.runs_on(self.pool)
        self.extent, self.table, self.places, self.found = (self.moves.cell() for _ in range(4))
        context = executor.bound(self.pool, aligned_empty(executor.program.arena_bytes + ALIGN))
        result = context.own(0) if 0 in context.direct else context.outputs[0]
        assert result is not None
        self.result = result
        names = [spec.name for spec in executor.inputs]
        padded = [(names.index("places"), self.places, 8, ROWS)]
        fit = Fit(context, padded, [(names.index("table"), self.table)], [], [(self.found, result)])
        self.fits = Fits(self.extent, ROWS + 1)
        self.fits.add(range(1, ROWS + 1), fit)
        self.moves.program(self.fits)

    def run(self, table: Array, places: Array) -> Array | None:
        self.extent.value, self.table.value, self.places.value = len(places), address(table), address(places)
        return self.result[: len(places)] if self.moves.run() else None


def test_a_program_for_more_rows_gets_zeros_behind_those_that_there_are(looked_up: Executor) -> None:
    lookup, rng = Lookup(looked_up), np.random.default_rng(0)
    for count in (4, 1, 3, 2):
        table, places = rng.random((5, WIDTH), np.float32), rng.integers(0, 5, count)
        np.testing.assert_array_equal(lookup.run(table, places), 2 * table[places])
        np.testing.assert_array_equal(lookup.result[count:], 2 * table[[0] * (ROWS - count)])
        assert lookup.found.value == address(lookup.result)


def test_extents_without_a_program_are_refused(looked_up: Executor) -> None:
    lookup, table = Lookup(looked_up), np.ones((5, WIDTH), np.float32)
    for count in (0, ROWS + 1, 1000):
        assert lookup.run(table, np.zeros(count, np.int64)) is None
    lookup.extent.value = -1
    assert not lookup.moves.run()
    lookup.fits.rows[2] = 0  # given up
    assert lookup.run(table, np.zeros(2, np.int64)) is None
    assert lookup.run(table, np.zeros(3, np.int64)) is not None


def test_of_no_rows_there_may_be_nothing_to_compute(looked_up: Executor) -> None:
    lookup, table = Lookup(looked_up), np.ones((5, WIDTH), np.float32)
    lookup.fits.add_nothing()
    found = lookup.run(table, np.zeros(0, np.int64))
    assert found is not None and found.shape == (0, WIDTH)
    assert lookup.found.value == 0


def test_what_a_program_complains_of_is_refused(looked_up: Executor) -> None:
    lookup, table = Lookup(looked_up), np.ones((5, WIDTH), np.float32)
    assert lookup.run(table, np.asarray([1, 5])) is None
    assert lookup.run(table, np.asarray([1, 4])) is not None


def test_all_programs_run_on_the_same_threads(looked_up: Executor) -> None:
    lookup = Lookup(looked_up)
    with ThreadPool(1) as others:
        assert lookup.moves.runs_on(lookup.pool) and not lookup.moves.runs_on(others)
