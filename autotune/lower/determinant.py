"""determinant: Gaussian elimination with partial pivoting, on a float64 copy of the matrix."""

from __future__ import annotations

from collections.abc import Callable

from autotune.lower.extern import LANES, Row, extern_nest, store, where
from autotune.lower.ir import Load, Stmt
from autotune.lower.pivots import Pivots
from autotune.tensor.dtype import DType
from autotune.tensor.expr import binary, cast, const, select, unary
from autotune.tensor.linear import Linear


@extern_nest("determinant")
def determinant(row: Row) -> tuple[Stmt, ...]:
    n, _ = row.inner(row.inputs[0])
    width = n if n <= LANES else -(-n // LANES) * LANES
    matrix = row.buffer("matrix", DType.f64, (n, width))
    factor, total = (row.register(name, DType.f64) for name in ("factor", "total"))
    pivots = Pivots(row, matrix, n)
    at = pivots.at

    def columns(k: Linear, element: Callable[[Linear], Stmt]) -> tuple[Stmt, ...]:
        """From k on; whole vectors, what lies before it in one included."""
        if n <= LANES:
            return row.each((n,), lambda j: (element(*j),))

        def block(b: Linear) -> tuple[Stmt, ...]:
            vector = row.each((LANES,), lambda lane: (element(b * LANES + lane[0]),))
            return (where((b * LANES + (LANES - 1) - k,), vector),)

        return (row.loop(width // LANES, block),)

    def eliminate(k: Linear, i: Linear) -> tuple[Stmt, ...]:
        top = Load(*at(k, k))
        # Where the whole column is zero the product is zero already, and nothing may become NaN.
        ratio = select(binary("eq", top, 0.0), const(0.0, DType.f64), Load(*at(i, k)) / top)

        def element(j: Linear) -> Stmt:
            return store(at(i, j), Load(*at(i, j)) - Load(*factor) * Load(*at(k, j)))

        return (where((i - k - 1,), (store(factor, ratio), *columns(k, element))),)

    def step(k: Linear) -> tuple[Stmt, ...]:
        negated = store(total, unary("neg", Load(*total)))
        return (
            *pivots.bring_up(k, lambda element: columns(k, element), (negated,)),
            store(total, Load(*total) * Load(*at(k, k))),
            row.loop(n, lambda i: eliminate(k, i)),
        )

    def fill(i: Linear) -> tuple[Stmt, ...]:
        given = row.loop(n, lambda j: (store(at(i, j), cast(DType.f64, row.load(0, (i, j)))),))
        behind = row.each((width - n,), lambda j: (store(at(i, j[0] + n), const(0.0, DType.f64)),))
        return (given, *behind)

    return (
        row.loop(n, fill),
        store(total, const(1.0, DType.f64)),
        row.loop(n, step),
        store(row.output(0, ()), Load(*total)),
    )
