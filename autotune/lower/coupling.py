"""Nest of `coupled_probabilities`: a row's rounds end when they bring nothing."""

from __future__ import annotations

from autotune.lower.extern import Place, Row, extern_nest, store, where
from autotune.lower.ir import Index, Load, Stmt
from autotune.tensor.coupling import CLOSE, NEVER, ROUNDS
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, const, maximum, minimum, select, unary
from autotune.tensor.linear import Linear


@extern_nest("coupled_probabilities")
def coupled_probabilities(row: Row) -> tuple[Stmt, ...]:
    n, _ = row.inner(row.inputs[0])
    q = row.buffer("q", DType.f64, (n, n))
    p, product = (row.buffer(name, DType.f64, (n,)) for name in ("p", "product"))
    total, step, far = (row.register(name, DType.f64) for name in ("total", "step", "far"))
    close = const(CLOSE / n, DType.f64)

    def number(place: Place, value: float) -> Stmt:
        return store(place, const(value, DType.f64))

    def likely(i: Linear, j: Linear) -> Expr:
        return minimum(maximum(cast(DType.f64, row.load(0, (i, j))), NEVER), 1 - NEVER)

    def fill(t: Linear) -> tuple[Stmt, ...]:
        def add(j: Linear) -> tuple[Stmt, ...]:
            square = select(binary("eq", Index(j), Index(t)), const(0.0, DType.f64), likely(j, t) * likely(j, t))
            other = store((q, (t, j)), unary("neg", likely(j, t) * likely(t, j)))
            return (other, store(total, Load(*total) + square))

        own = store((q, (t, t)), Load(*total))
        return (number(total, 0.0), row.loop(n, add), own, number((p, (t,)), 1.0 / n))

    def multiply() -> tuple[Stmt, ...]:
        """q @ p (q is symmetric), and p @ q @ p."""

        def column(j: Linear) -> tuple[Stmt, ...]:
            def element(t: tuple[Linear, ...]) -> tuple[Stmt, ...]:
                return (store((product, t), Load(product, t) + Load(q, (j, *t)) * Load(p, (j,))),)

            return row.each((n,), element)

        def sum_up(t: Linear) -> tuple[Stmt, ...]:
            return (store(total, Load(*total) + Load(p, (t,)) * Load(product, (t,))),)

        return (
            *row.each((n,), lambda t: (number((product, t), 0.0),)),
            row.loop(n, column),
            number(total, 0.0),
            row.loop(n, sum_up),
        )

    def look(t: Linear) -> tuple[Stmt, ...]:
        away = unary("abs", Load(product, (t,)) - Load(*total))
        return (store(far, select(away > Load(*far), away, Load(*far))),)

    def better(t: Linear) -> tuple[Stmt, ...]:
        own, with_t, by = Load(q, (t, t)), Load(product, (t,)), Load(*step)
        whole = 1.0 + by

        def element(j: tuple[Linear, ...]) -> tuple[Stmt, ...]:
            moved = (Load(product, j) + by * Load(q, (t, *j))) / whole
            return (store((product, j), moved), store((p, j), Load(p, j) / whole))

        return (
            store(step, (Load(*total) - with_t) / own),
            store((p, (t,)), Load(p, (t,)) + by),
            store(total, (Load(*total) + by * (by * own + 2.0 * with_t)) / (whole * whole)),
            *row.each((n,), element),
        )

    def round_(_: Linear) -> tuple[Stmt, ...]:
        goes_on = Load(*far) >= close
        steps = (*multiply(), number(far, 0.0), row.loop(n, look), where((goes_on,), (row.loop(n, better),)))
        return (where((goes_on,), steps),)

    return (
        row.loop(n, fill),
        number(far, 1.0),
        row.loop(max(ROUNDS, n), round_),
        *row.each((n,), lambda t: (store(row.output(0, t), cast(row.outputs[0].dtype, Load(p, t))),)),
    )
