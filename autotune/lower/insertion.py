"""The few best of many: a sorted list, into which what is better than its last element is inserted.

Elements are compared with the list's last one a vector at a time, and seldom is one better: of n elements in random
order, k * ln(n / k). An insertion moves the tail of the list up by vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.lower.extern import LANES, Place, Row, store, store_both, where
from autotune.lower.ir import Condition, Index, Load, Stmt, Store
from autotune.lower.order import Order
from autotune.schedule.state import VECTORIZE
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Select, cast, const
from autotune.tensor.linear import Linear


def insert_best(row: Row, order: Order, k: int) -> tuple[tuple[Stmt, ...], Place]:
    """Statements that find the k best, and the place of the first one's position; the others follow it."""
    return _List(row, order, k).statements()


class _List:
    def __init__(self, row: Row, order: Order, k: int) -> None:
        self.row, self.order, self.k = row, order, k
        (self.n,) = row.inner(row.inputs[0])
        self.lanes = min(1 << (k - 1).bit_length(), LANES)
        self.blocks = -(-k // self.lanes)
        # Element 0 is in front of the list: what is read for the first element's neighbour, and never moves up.
        self.keys = row.buffer("keys", order.key_dtype, (1 + self.blocks * self.lanes,))
        self.places = row.buffer("places", DType.i32, self.keys.shape)
        self.best = row.register("best", order.key_dtype)

    def statements(self) -> tuple[tuple[Stmt, ...], Place]:
        front = (Linear(),)
        first = const(-1 - self.order.last, self.order.key_dtype)
        begin = (store((self.keys, front), first), store((self.places, front), const(0, DType.i32)))
        fill = self.row.loop(self.k, lambda i: self._insert(i, growing=True))
        whole, rest = divmod(self.n - self.k, LANES)
        vectors = self.row.loop(whole, self._vector)
        tail = self.row.loop(rest, lambda i: self._if_better(i + (self.k + whole * LANES)))
        return (*begin, fill, vectors, tail), (self.places, (Linear(1),))

    def _key(self, i: Linear) -> Expr:
        return self.order.key(self.row.load(0, (i,)))

    def _last(self) -> Expr:
        return Load(self.keys, (Linear(self.k),))

    def _vector(self, block: Linear) -> tuple[Stmt, ...]:
        """A vector of elements, one by one if any of them is better than the last of the list."""
        start = block * LANES + self.k

        def fold(lane: Linear) -> tuple[Stmt, ...]:
            return (Store((self.best,), (self._key(start + lane),), "min"),)

        clear = store(self.best, const(self.order.last, self.order.key_dtype))
        least = replace(self.row.loop(LANES, fold), mark=VECTORIZE)
        each = self.row.loop(LANES, lambda i: self._if_better(start + i))
        return clear, least, where((Load(*self.best) < self._last(),), (each,))

    def _if_better(self, i: Linear) -> tuple[Stmt, ...]:
        # Equal ones came first, and stay first.
        return (where((self._key(i) < self._last(),), self._insert(i, growing=False)),)

    def _insert(self, i: Linear, growing: bool) -> tuple[Stmt, ...]:
        """Element i goes behind all that are no worse; `growing`: the list has i elements so far."""
        place = Index(i)
        key = store(self.best, self._key(i))

        def move(block: Linear, lane: Linear) -> tuple[Stmt, ...]:
            at = block * self.lanes + lane + 1
            here, before = (at,), (at - 1,)

            def stays(position: tuple[Linear, ...]) -> Expr:
                behind = Load(self.keys, position) <= Load(*self.best)
                return behind & (Index(position[0]) <= place) if growing else behind

            def moved(old: Expr, lower: Expr, new: Expr) -> Expr:
                inner = Select(stays(before), new, lower, new.dtype)
                return Select(stays(here), old, inner, new.dtype)

            keys = moved(Load(self.keys, here), Load(self.keys, before), Load(*self.best))
            number = Load(self.places, before)
            places = moved(Load(self.places, here), number, cast(DType.i32, place))
            return (store_both((self.keys, here), (self.places, here), (keys, places)),)

        def vector(step: Linear) -> tuple[Stmt, ...]:
            # From the end to the front: what is read has not been moved yet.
            block = step * -1 + (self.blocks - 1)
            nest = replace(self.row.loop(self.lanes, lambda lane: move(block, lane)), mark=VECTORIZE)
            reached: Sequence[Condition] = (i - block * self.lanes,) if growing else ()
            return (where(reached, (nest,)) if reached else nest,)

        return key, self.row.loop(self.blocks, vector)
