"""Operators that move rows, and programs between them, in one call of native code: `autotune.codegen.moves_ir`.

How many rows there are, and where values lie, is in cells of memory, which the caller sets before a run or a move does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.codegen.link import Library, load_objects
from autotune.codegen.moves_ir import MOVE_WORDS, NOTHING, moves_object
from autotune.runtime.address import address
from autotune.runtime.executor import Array, Context
from autotune.runtime.once import once
from autotune.runtime.program import INPUT
from autotune.runtime.threads import ThreadPool

Cell = ctypes.c_int64
"""A number, or the address of a value."""

_CHUNK = 256  # cells that lie together


@dataclass(frozen=True, slots=True)
class Fit:
    """A program for as many rows as there are, or more.

    Attributes:
        context: of the program, which belongs to the moves.
        padded: numbers of inputs that are copied and get zeros behind them, with cells of the values and bytes of a row
            and the rows of the program.
        given: numbers of inputs that are read where they lie.
        ends: numbers of inputs that are the extent.
        results: cells that get the addresses of what the kernels write, and what that is.
    """

    context: Context
    padded: Sequence[tuple[int, Cell, int, int]]
    given: Sequence[tuple[int, Cell]]
    ends: Sequence[int]
    results: Sequence[tuple[Cell, Array]]


class Fits:
    """Programs by the extent that each is for. Their number is that of extents, from 0 on."""

    def __init__(self, extent: Cell, number: int) -> None:
        self.extent, self.rows = extent, np.zeros(number, np.int64)
        self._keep: list[object] = [extent]

    def add(self, extents: Sequence[int], fit: Fit) -> None:
        """What runs of these extents take from now on."""
        context = fit.context
        for number in fit.ends:
            context.read_at(number, _at(self.extent))
        inputs = [(_at(source), context.place_read(n), nbytes, rows) for n, source, nbytes, rows in fit.padded]
        points = [(entry, _at(source)) for n, source in fit.given for entry in context.entries(INPUT, n)]
        results = [(_at(cell), address(array)) for cell, array in fit.results]
        tables = [np.asarray(table, np.int64) for table in (inputs, points, context.flags(), results)]
        row = np.asarray([context.plan.address, *(word for t in tables for word in (address(t), len(t)))], np.int64)
        self._keep += [fit, row, *tables]
        self.rows[list(extents)] = address(row)

    def add_nothing(self) -> None:
        """Runs of no rows have nothing to compute from now on; the cells of results stay as they are."""
        self.rows[0] = NOTHING


class Moves:
    """One after the other. All programs run on the same threads.

    Methods that add one take cells with the addresses of values, and with numbers.
    """

    def __init__(self) -> None:
        self._words: list[Sequence[int]] = []
        self._keep: list[object] = []
        self._numbers: dict[int, Cell] = {}
        self._chunk, self._used = (Cell * _CHUNK)(), 0
        self._pool: ThreadPool | None = None
        self._ready: tuple[Array, Array] | None = None

    def cell(self) -> Cell:
        """A new one, which holds 0."""
        if self._used == _CHUNK:
            self._chunk, self._used = (Cell * _CHUNK)(), 0
        self._used += 1
        return Cell.from_buffer(self._chunk, 8 * (self._used - 1))

    def number(self, value: int) -> Cell:
        """The cell of a number that is always the same."""
        if value not in self._numbers:
            self._numbers[value] = self.cell()
            self._numbers[value].value = value
        return self._numbers[value]

    def times(self, one: Cell, other: Cell) -> Cell:
        """The product of two numbers, as they are then."""
        result = self.cell()
        self._add("times", result, one, other)
        return result

    def copy(self, target: Cell, source: Cell, nbytes: Cell) -> None:
        self._add("copy", target, source, nbytes)

    def transpose(self, target: Cell, source: Cell, rows: Cell, columns: Cell) -> None:
        """Of elements of 8 bytes."""
        self._add("transpose", target, source, rows, columns)

    def rows(
        self, how: str, target: Cell, source: Cell, places: Cell, count: Cell, nbytes: Cell, extents: Sequence[Cell]
    ) -> None:
        """Move so many rows: "gather" from places, "scatter" to places, "scatter_add_f32" to what is there."""
        axes = np.asarray([_at(extent) for extent in extents], np.int64)
        self._keep += [axes, *extents]
        self._add(how, target, source, places, count, nbytes, len(axes), address(axes))

    def program(self, fits: Fits) -> None:
        self._keep.append(fits)
        self._add("program", fits.extent, address(fits.rows), len(fits.rows))

    def runs_on(self, pool: ThreadPool) -> bool:
        """Whether programs of these threads may be among the moves: there are no others."""
        self._pool = self._pool or pool
        return self._pool is pool

    def run(self) -> bool:
        """Whether all was done; where not, what the moves have written is worth nothing."""
        if self._ready is None:
            table = np.asarray([[*words, *[0] * (MOVE_WORDS - len(words))] for words in self._words], np.int64)
            self._ready = table, np.asarray([len(table), address(table)], np.int64)
        driver, moves = _native().run, address(self._ready[1])
        return not (driver(0, 0, moves) if self._pool is None else self._pool.run_loop(driver, moves))

    def _add(self, name: str, *words: Cell | int) -> None:
        self._keep += [word for word in words if isinstance(word, Cell)]
        known = [word if isinstance(word, int) else _at(word) for word in words]
        self._words.append([_native().library.address(f"autotune_{name}"), *known])


_at: Callable[[Cell], int] = ctypes.addressof


class _Native:
    def __init__(self) -> None:
        self.library: Library = load_objects([moves_object()])
        pointer = ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, pointer, pointer, pointer)
        self.run = kind(self.library.address("autotune_moves"))


@once
def _native() -> _Native:
    """Compiled once per process, by the first who asks."""
    return _Native()
