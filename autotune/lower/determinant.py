"""determinant: Gaussian elimination with partial pivoting, on a float64 copy of the matrix."""

from __future__ import annotations

from autotune.lower.extern import Place, Row, extern_nest, store, store_both, where
from autotune.lower.ir import Load, Stmt
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Select, binary, cast, const, select, unary
from autotune.tensor.linear import Linear


@extern_nest("determinant")
def determinant(row: Row) -> tuple[Stmt, ...]:
    n, _ = row.inner(row.inputs[0])
    matrix = row.buffer("matrix", DType.f64, (n, n))
    factor = row.buffer("factor", DType.f64, (1,))
    product = row.buffer("product", DType.f64, (1,))
    scale: Place = factor, (Linear(),)
    total: Place = product, (Linear(),)

    def at(i: Linear, j: Linear) -> Place:
        return matrix, (i, j)

    def pivot(k: Linear, i: Linear) -> tuple[Stmt, ...]:
        """Rows k and i change places when i has the larger element in column k; a flag, as columns move one by one."""
        larger = unary("abs", Load(*at(i, k))) > unary("abs", Load(*at(k, k)))
        swap = Load(*scale) > 0.0

        def exchange(j: Linear) -> tuple[Stmt, ...]:
            a, b = Load(*at(k, j)), Load(*at(i, j))
            return (store_both(at(k, j), at(i, j), (_either(swap, b, a), _either(swap, a, b))),)

        flag = store(scale, select(larger, const(1.0, DType.f64), 0.0))
        sign = store(total, _either(swap, unary("neg", Load(*total)), Load(*total)))
        return (where((i - k - 1,), (flag, row.loop(n, exchange), sign)),)

    def eliminate(k: Linear, i: Linear) -> tuple[Stmt, ...]:
        top = Load(*at(k, k))
        # Where the whole column is zero the product is zero already, and nothing may become NaN.
        ratio = select(binary("eq", top, 0.0), const(0.0, DType.f64), Load(*at(i, k)) / top)

        def column(j: Linear) -> tuple[Stmt, ...]:
            return (store(at(i, j), Load(*at(i, j)) - Load(*scale) * Load(*at(k, j))),)

        return (where((i - k - 1,), (store(scale, ratio), row.loop(n, column))),)

    def step(k: Linear) -> tuple[Stmt, ...]:
        return (
            row.loop(n, lambda i: pivot(k, i)),
            store(total, Load(*total) * Load(*at(k, k))),
            row.loop(n, lambda i: eliminate(k, i)),
        )

    def fill(i: Linear, j: Linear) -> tuple[Stmt, ...]:
        return (store(at(i, j), cast(DType.f64, row.load(0, (i, j)))),)

    return (
        row.loop(n, lambda i: (row.loop(n, lambda j: fill(i, j)),)),
        store(total, const(1.0, DType.f64)),
        row.loop(n, step),
        store(row.output(0, ()), Load(*total)),
    )


def _either(condition: Expr, a: Expr, b: Expr) -> Expr:
    return Select(condition, a, b, a.dtype)
