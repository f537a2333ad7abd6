"""Pivots of eliminations in an extern nest: of a column the row with its largest element, and the exchange of rows."""

from __future__ import annotations

from collections.abc import Callable

from autotune.lower.extern import Place, Row, store, store_both, where
from autotune.lower.ir import Buffer, Index, Load, Stmt
from autotune.tensor.dtype import DType
from autotune.tensor.expr import const, select, unary
from autotune.tensor.linear import Linear, clamp

Columns = Callable[[Callable[[Linear], Stmt]], tuple[Stmt, ...]]
"""Statements that do something to an element of each column."""


class Pivots:
    """Those of a matrix of f64 with so many rows, in `buffer`."""

    def __init__(self, row: Row, buffer: Buffer, rows: int) -> None:
        self._row, self._buffer, self._rows = row, buffer, rows
        self._largest = row.register("largest", DType.f64)
        self._best = row.register("best", DType.i64)

    def at(self, i: Linear, j: Linear) -> Place:
        return self._buffer, (i, j)

    def bring_up(self, k: Linear, columns: Columns, exchanged: tuple[Stmt, ...] = ()) -> tuple[Stmt, ...]:
        """Exchanges row k with that of the rows from k on that has the largest element in column k, the first of
        several; with `exchanged` where it is another."""
        chosen = Linear(0, {clamp(Load(*self._best), self._rows - 1): 1})

        def look(i: Linear) -> tuple[Stmt, ...]:
            size = unary("abs", Load(*self.at(i, k)))
            better = size > Load(*self._largest)
            found = select(better, Index(i), Load(*self._best))
            largest = select(better, size, Load(*self._largest))
            return (where((i - k,), (store(self._best, found), store(self._largest, largest))),)

        def exchange(j: Linear) -> Stmt:
            here, there = self.at(k, j), self.at(chosen, j)
            return store_both(here, there, (Load(*there), Load(*here)))

        return (
            store(self._largest, const(-1.0, DType.f64)),
            store(self._best, Index(k)),
            self._row.loop(self._rows, look),
            where((Load(*self._best) > Index(k),), (*columns(exchange), *exchanged)),
        )
