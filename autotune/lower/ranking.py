"""The order of a few elements: each one's rank is how many belong before it, counted for a vector of them at a time.

Every element is compared with every other, without a branch that could be guessed wrong: for short rows there is
nothing faster.
"""

from __future__ import annotations

from dataclasses import replace

from autotune.lower.extern import LANES, Place, Row, store
from autotune.lower.ir import Index, Load, Stmt, Store
from autotune.lower.order import Order
from autotune.schedule.state import VECTORIZE
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Expr, binary, cast, const, select
from autotune.tensor.linear import Linear, clamp


def rank_all(row: Row, order: Order, k: int) -> tuple[tuple[Stmt, ...], Place]:
    """Statements that find the k best, and the place of the first one's position; the others follow it."""
    (n,) = row.inner(row.inputs[0])
    lanes = min(1 << (n - 1).bit_length(), LANES)
    blocks = -(-n // lanes)
    # What lies behind the last element is compared, too, and never looked at.
    keys = row.buffer("keys", order.key_dtype, (blocks * lanes,))
    numbers = row.buffer("numbers", DType.i32, (blocks * lanes,))
    ranks = row.buffer("ranks", DType.i32, (blocks * lanes,))
    places = row.buffer("places", DType.i32, (k + 1,))  # the last one is for all that is not wanted
    count = row.registers("count", DType.i32, lanes)

    def fill(i: tuple[Linear, ...]) -> tuple[Stmt, ...]:
        return store((keys, i), order.key(row.load(0, i))), store((numbers, i), cast(DType.i32, Index(i[0])))

    def block(b: Linear) -> tuple[Stmt, ...]:
        def compare(j: Linear) -> tuple[Stmt, ...]:
            def add(lane: Linear) -> tuple[Stmt, ...]:
                at = (b * lanes + lane,)
                before = _before(Load(keys, (j,)), Load(numbers, (j,)), Load(keys, at), Load(numbers, at))
                return (Store(((count, (lane,)),), (select(before, const(1, DType.i32), 0),), "sum"),)

            return (replace(row.loop(lanes, add), mark=VECTORIZE),)

        clear = row.loop(lanes, lambda lane: (store((count, (lane,)), const(0, DType.i32)),))
        put = row.loop(lanes, lambda lane: (store((ranks, (b * lanes + lane,)), Load(count, (lane,))),))
        return replace(clear, mark=VECTORIZE), row.loop(n, compare), replace(put, mark=VECTORIZE)

    def place(i: Linear) -> tuple[Stmt, ...]:
        at = Linear(0, {clamp(cast(DType.i64, Load(ranks, (i,))), k): 1})
        return (store((places, (at,)), cast(DType.i32, Index(i))),)

    return (*row.each((n,), fill), row.loop(blocks, block), row.loop(n, place)), (places, (Linear(),))


def _before(key: Expr, number: Expr, other: Expr, other_number: Expr) -> Expr:
    """Whether an element belongs before another one: of equal ones the first."""
    tie = Binary("and", binary("eq", key, other), number < other_number, DType.bool)
    return Binary("or", key < other, tie, DType.bool)
