"""determinant: Gaussian elimination with partial pivoting, on a float64 copy of the matrix."""

from __future__ import annotations

from collections.abc import Callable

from autotune.lower.extern import LANES, Place, Row, extern_nest, store, store_both, where
from autotune.lower.ir import Index, Load, Stmt
from autotune.tensor.dtype import DType
from autotune.tensor.expr import binary, cast, const, select, unary
from autotune.tensor.linear import Linear, clamp


@extern_nest("determinant")
def determinant(row: Row) -> tuple[Stmt, ...]:
    n, _ = row.inner(row.inputs[0])
    width = n if n <= LANES else -(-n // LANES) * LANES
    matrix = row.buffer("matrix", DType.f64, (n, width))
    factor, largest, total = (row.register(name, DType.f64) for name in ("factor", "largest", "total"))
    best = row.register("best", DType.i64)
    chosen = Linear(0, {clamp(Load(*best), n - 1): 1})

    def at(i: Linear, j: Linear) -> Place:
        return matrix, (i, j)

    def look(k: Linear, i: Linear) -> tuple[Stmt, ...]:
        """The row from k on with the largest element in column k, the first of several."""
        size = unary("abs", Load(*at(i, k)))
        better = size > Load(*largest)
        found = select(better, Index(i), Load(*best))
        return (where((i - k,), (store(best, found), store(largest, select(better, size, Load(*largest))))),)

    def columns(k: Linear, element: Callable[[Linear], Stmt]) -> tuple[Stmt, ...]:
        """From k on; whole vectors, what lies before it in one included."""
        if n <= LANES:
            return row.each((n,), lambda j: (element(*j),))

        def block(b: Linear) -> tuple[Stmt, ...]:
            vector = row.each((LANES,), lambda lane: (element(b * LANES + lane[0]),))
            return (where((b * LANES + (LANES - 1) - k,), vector),)

        return (row.loop(width // LANES, block),)

    def exchange(k: Linear) -> tuple[Stmt, ...]:
        def element(j: Linear) -> Stmt:
            return store_both(at(k, j), at(chosen, j), (Load(*at(chosen, j)), Load(*at(k, j))))

        return (*columns(k, element), store(total, unary("neg", Load(*total))))

    def eliminate(k: Linear, i: Linear) -> tuple[Stmt, ...]:
        top = Load(*at(k, k))
        # Where the whole column is zero the product is zero already, and nothing may become NaN.
        ratio = select(binary("eq", top, 0.0), const(0.0, DType.f64), Load(*at(i, k)) / top)

        def element(j: Linear) -> Stmt:
            return store(at(i, j), Load(*at(i, j)) - Load(*factor) * Load(*at(k, j)))

        return (where((i - k - 1,), (store(factor, ratio), *columns(k, element))),)

    def step(k: Linear) -> tuple[Stmt, ...]:
        return (
            store(largest, const(-1.0, DType.f64)),
            store(best, Index(k)),
            row.loop(n, lambda i: look(k, i)),
            where((Load(*best) > Index(k),), exchange(k)),
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
