"""inverse: Gauss-Jordan elimination with partial pivoting, on a float64 copy of the matrix beside the unit matrix."""

from __future__ import annotations

from collections.abc import Callable

from autotune.lower.extern import LANES, Row, extern_nest, store, where
from autotune.lower.ir import Index, Load, Stmt
from autotune.lower.pivots import Pivots
from autotune.tensor.dtype import DType
from autotune.tensor.expr import binary, cast, const, select
from autotune.tensor.linear import Linear


@extern_nest("inverse")
def inverse(row: Row) -> tuple[Stmt, ...]:
    n, _ = row.inner(row.inputs[0])
    width = 2 * n if 2 * n <= LANES else -(-2 * n // LANES) * LANES
    both, factor = row.buffer("both", DType.f64, (n, width)), row.register("factor", DType.f64)
    pivots = Pivots(row, both, n)
    at = pivots.at

    def columns(element: Callable[[Linear], Stmt]) -> tuple[Stmt, ...]:
        return row.each((width,), lambda j: (element(*j),))

    def eliminate(k: Linear, i: Linear) -> tuple[Stmt, ...]:
        """From another row, so much of row k that its column k becomes 0."""

        def element(j: Linear) -> Stmt:
            return store(at(i, j), Load(*at(i, j)) - Load(*factor) * Load(*at(k, j)))

        other = binary("ne", Index(i), Index(k))
        return (where((other,), (store(factor, Load(*at(i, k))), *columns(element))),)

    def step(k: Linear) -> tuple[Stmt, ...]:
        return (
            *pivots.bring_up(k, columns),
            store(factor, Load(*at(k, k))),
            *columns(lambda j: store(at(k, j), Load(*at(k, j)) / Load(*factor))),
            row.loop(n, lambda i: eliminate(k, i)),
        )

    def fill(i: Linear) -> tuple[Stmt, ...]:
        def unit(j: tuple[Linear, ...]) -> tuple[Stmt, ...]:
            one = select(binary("eq", Index(i), Index(j[0])), const(1.0, DType.f64), const(0.0, DType.f64))
            return (store(at(i, j[0] + n), one),)

        given = row.loop(n, lambda j: (store(at(i, j), cast(DType.f64, row.load(0, (i, j)))),))
        return (given, *row.each((width - n,), unit))

    def result(i: Linear) -> tuple[Stmt, ...]:
        return (row.loop(n, lambda j: (store(row.output(0, (i, j)), Load(*at(i, j + n))),)),)

    return (row.loop(n, fill), row.loop(n, step), row.loop(n, result))
