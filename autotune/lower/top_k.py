"""top_k: the k largest (or smallest) of each row and their positions: by ranks in short rows, a few by insertion, many
by sorting."""

from __future__ import annotations

import math

from autotune.lower.extern import LANES, Row, extern_nest, store
from autotune.lower.insertion import insert_best
from autotune.lower.ir import Load, Stmt
from autotune.lower.order import Order
from autotune.lower.radix import DIGIT_BITS, LEADING_BITS, sort_best
from autotune.lower.ranking import rank_all
from autotune.tensor.dtype import DType
from autotune.tensor.expr import cast
from autotune.tensor.linear import Linear, clamp

PICK_FROM = 1024
"""Rows of so many elements or more are thinned out before they are sorted, where that can leave out most."""
RANKED, PLACED = 6, 6
"""Cycles of comparing an element with a vector of others, and of putting it where it belongs."""
INSERTED, SHIFTED = 40, 0.4
"""Cycles of an insertion that nothing foresees, and of each element that may have to move for it."""
COUNTED, PICKED, MOVED, CLEARED = 1, 7, 7, 3
"""Cycles of an element that is counted, that is looked at to be picked, that one pass moves, and of a count's reset and
sum."""


@extern_nest("top_k")
def top_k(row: Row) -> tuple[Stmt, ...]:
    (n,), k = row.inner(row.inputs[0]), row.attrs["k"]
    if not k:
        return ()
    order = Order(row.inputs[0].dtype, bool(row.attrs.get("largest", 1)))
    pick = n >= PICK_FROM and 4 * k <= n
    ways = {
        "rank": _rank_cycles(n),
        "insert": _insertion_cycles(n, k),
        "sort": _sort_cycles(n, k, order.bits, pick),
    }
    way = min(ways, key=ways.__getitem__)
    if way == "rank":
        found, (places, (first,)) = rank_all(row, order, k)
    elif way == "insert":
        found, (places, (first,)) = insert_best(row, order, k)
    else:
        found, (places, (first,)) = sort_best(row, order, k, pick)

    def take(i: Linear) -> tuple[Stmt, ...]:
        place = cast(DType.i64, Load(places, (first + i,)))
        value = row.load(0, (Linear(0, {clamp(place, n - 1): 1}),))
        return store(row.output(0, (i,)), value), store(row.output(1, (i,)), place)

    return (*found, row.loop(k, take))


def _rank_cycles(n: int) -> float:
    """About what a row takes."""
    return n * (RANKED * -(-n // LANES) + PLACED)


def _insertion_cycles(n: int, k: int) -> float:
    """The same, where elements are in random order."""
    inserted = k + k * math.log(n / k)
    return n + inserted * (INSERTED + k * SHIFTED)


def _sort_cycles(n: int, k: int, bits: int, pick: bool) -> float:
    passes = -(-bits // DIGIT_BITS)
    sorted_ = min(2 * k, n) if pick else n
    picked = n * PICKED + (2 << LEADING_BITS) if pick else 0
    return n * COUNTED + picked + passes * (sorted_ * MOVED + (CLEARED << DIGIT_BITS))
