"""top_k: the k largest (or smallest) of each row and their positions, by k passes of bubble sort over a copy."""

from __future__ import annotations

from autotune.lower.extern import Place, Row, extern_nest, store, store_both, where
from autotune.lower.ir import Index, Load, Stmt
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Expr, Select, binary, unary
from autotune.tensor.linear import Linear


@extern_nest("top_k")
def top_k(row: Row) -> tuple[Stmt, ...]:
    (n,), k = row.inner(row.inputs[0]), row.attrs["k"]
    order = "gt" if row.attrs.get("largest", 1) else "lt"
    keys = row.buffer("keys", row.inputs[0].dtype, (n,))
    places = row.buffer("places", DType.i64, (n,))

    def key(i: Linear) -> Place:
        return keys, (i,)

    def position(i: Linear) -> Place:
        return places, (i,)

    def fill(i: Linear) -> tuple[Stmt, ...]:
        return store(key(i), row.load(0, (i,))), store(position(i), Index(i))

    def exchange(done: Linear, step: Linear) -> tuple[Stmt, ...]:
        # From the end to the front: the best of what is left rises to place `done`.
        lower = step * -1 + (n - 1)
        upper = lower - 1
        first, second = Load(*key(upper)), Load(*key(lower))
        # Stable: equal elements keep their order. NaN comes last, as in NumPy.
        swap = _before(order, second, first)
        flip = store_both(key(upper), key(lower), (_either(swap, second, first), _either(swap, first, second)))
        a, b = Load(*position(upper)), Load(*position(lower))
        # Positions first: their order is decided by the keys, which are then exchanged.
        follow = store_both(position(upper), position(lower), (_either(swap, b, a), _either(swap, a, b)))
        return (where((upper - done,), (follow, flip)),)

    def take(i: Linear) -> tuple[Stmt, ...]:
        return store(row.output(0, (i,)), Load(*key(i))), store(row.output(1, (i,)), Load(*position(i)))

    return (
        row.loop(n, fill),
        row.loop(k, lambda done: (row.loop(n - 1, lambda step: exchange(done, step)),)),
        row.loop(k, take),
    )


def _either(condition: Expr, a: Expr, b: Expr) -> Expr:
    return Select(condition, a, b, a.dtype)


def _before(order: str, a: Expr, b: Expr) -> Expr:
    """Whether a belongs before b."""
    better = binary(order, a, b)
    if not a.dtype.is_float:
        return better
    only_b_nan = Binary("and", unary("isnan", b), unary("not", unary("isnan", a)), DType.bool)
    return Binary("or", better, only_b_nan, DType.bool)
