"""Sorting by digits: as many passes as the keys have bytes, each of which counts and moves all elements.

Stable, without comparisons, and as fast for ordered elements as for others. Where few of many are wanted, the elements
whose leading bits are those of the last wanted one or better are picked first: seldom many more than are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.lower.extern import Place, Row, store, store_both, where
from autotune.lower.ir import Buffer, Index, Load, Stmt, Store
from autotune.lower.order import Order
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, const, select
from autotune.tensor.linear import Linear, clamp

DIGIT_BITS = 8
"""Of a key that one pass sorts by: its counts and the ends of what it moves to stay in a first-level cache."""
LEADING_BITS = 11
"""By which elements are picked: sign, exponent and two bits of a fraction of f32, so few beside the wanted ones."""
_BLOCK = 64
"""Elements between two looks at whether all that were picked are done."""


def sort_best(row: Row, order: Order, k: int, pick: bool) -> tuple[tuple[Stmt, ...], Place]:
    """Statements that sort the elements of a row, and the place of the first one's position; the others follow it.

    Args:
        k: how many of the best are needed.
        pick: leave most of the others out before sorting.
    """
    return _Sort(row, order, k).statements(pick)


class _Sort:
    def __init__(self, row: Row, order: Order, k: int) -> None:
        self.row, self.order, self.k = row, order, k
        (self.n,) = row.inner(row.inputs[0])
        self.keys = [row.buffer(f"keys{side}", order.key_dtype, (self.n,)) for side in range(2)]
        self.places = [row.buffer(f"places{side}", DType.i32, (self.n,)) for side in range(2)]
        self.digits = -(-order.bits // DIGIT_BITS)
        self.counts = row.buffer("counts", DType.i32, (self.digits, 1 << DIGIT_BITS))
        self.sums = [row.register(f"sum{digit}", DType.i32) for digit in range(self.digits)]
        self.total = row.register("total", DType.i64)

    def statements(self, pick: bool) -> tuple[tuple[Stmt, ...], Place]:
        def fill(i: Linear) -> tuple[Stmt, ...]:
            number = store((self.places[0], (i,)), cast(DType.i32, Index(i)))
            return store((self.keys[0], (i,)), self.order.key(self.row.load(0, (i,)))), number

        body = [*self.row.each((self.n,), lambda i: fill(i[0])), store(self.total, const(self.n, DType.i64))]
        body += self._pick() if pick else ()
        body += self._count(pick)
        for digit in range(self.digits):
            body += self._move(digit, pick)
        return tuple(body), (self.places[self.digits % 2], (Linear(),))

    def _elements(self, body: Callable[[Linear], Sequence[Stmt]], picked: bool) -> Stmt:
        """`body(i)` for all elements that take part, in order."""
        if not picked:
            return self.row.loop(self.n, body)

        def block(b: Linear) -> tuple[Stmt, ...]:
            def one(i: Linear) -> tuple[Stmt, ...]:
                at = b * _BLOCK + i
                return (where((at * -1 + (self.n - 1), Index(at) < Load(*self.total)), body(at)),)

            return (where((Index(b * _BLOCK) < Load(*self.total),), (self.row.loop(_BLOCK, one),)),)

        return self.row.loop(-(-self.n // _BLOCK), block)

    def _digit(self, key: Expr, first_bit: int, bits: int) -> Linear:
        """`bits` bits of a key from `first_bit` on, such that a larger key has a larger leading digit."""
        shifted = binary("shr", key + (-1 - self.order.last), first_bit) if first_bit else key + (-1 - self.order.last)
        wide = cast(DType.i64, shifted)
        return Linear(0, {wide: 1}).floormod(1 << bits, {})

    def _pick(self) -> tuple[Stmt, ...]:
        """Keep, in order, what has the leading bits of the k best."""
        bits = min(LEADING_BITS, self.order.bits)
        shift = self.order.bits - bits
        leading = self.row.buffer("leading", DType.i32, (1 << bits,))
        bound, sum_ = self.row.register("bound", DType.i64), self.row.register("sum", DType.i32)

        def at(i: Linear) -> Linear:
            return self._digit(Load(self.keys[0], (i,)), shift, bits)

        def count(i: Linear) -> tuple[Stmt, ...]:
            return (_increment(leading, (at(i),)),)

        def add(j: Linear) -> tuple[Stmt, ...]:
            total = Load(*sum_) + Load(leading, (j,))
            enough = select(total < self.k, const(1, DType.i64), 0)
            return (store_both(sum_, bound, (total, Load(*bound) + enough)),)

        def keep(i: Linear) -> tuple[Stmt, ...]:
            here: tuple[Linear, ...] = (Linear(0, {clamp(Load(*self.total), self.n - 1): 1}),)
            key, place = Load(self.keys[0], (i,)), Load(self.places[0], (i,))
            take = store_both((self.keys[0], here), (self.places[0], here), (key, place))
            more = store(self.total, Load(*self.total) + 1)
            return (where((Index(at(i)) <= Load(*bound),), (take, more)),)

        return (
            *self.row.each(leading.shape, lambda i: (store((leading, i), const(0, DType.i32)),)),
            self.row.loop(self.n, count),
            store(sum_, const(0, DType.i32)),
            store(bound, const(0, DType.i64)),
            self.row.loop(1 << bits, add),
            store(self.total, const(0, DType.i64)),
            self.row.loop(self.n, keep),
        )

    def _count(self, picked: bool) -> tuple[Stmt, ...]:
        """For each digit and each of its values: the place of the first element that has it."""

        def count(i: Linear) -> tuple[Stmt, ...]:
            key = Load(self.keys[0], (i,))
            return tuple(
                _increment(self.counts, (Linear(digit), self._digit(key, digit * DIGIT_BITS, DIGIT_BITS)))
                for digit in range(self.digits)
            )

        def add(j: Linear) -> tuple[Stmt, ...]:
            found = []
            for digit, sum_ in enumerate(self.sums):
                here = (self.counts, (Linear(digit), j))
                found.append(store_both(here, sum_, (Load(*sum_), Load(*sum_) + Load(*here))))
            return tuple(found)

        return (
            *self.row.each(self.counts.shape, lambda i: (store((self.counts, i), const(0, DType.i32)),)),
            self._elements(count, picked),
            *(store(sum_, const(0, DType.i32)) for sum_ in self.sums),
            self.row.loop(1 << DIGIT_BITS, add),
        )

    def _move(self, digit: int, picked: bool) -> tuple[Stmt, ...]:
        """Order by one digit, those of equal digits as they were."""
        source, target = digit % 2, 1 - digit % 2

        def move(i: Linear) -> tuple[Stmt, ...]:
            key, place = Load(self.keys[source], (i,)), Load(self.places[source], (i,))
            counter = (Linear(digit), self._digit(key, digit * DIGIT_BITS, DIGIT_BITS))
            free = clamp(cast(DType.i64, Load(self.counts, counter)), self.n - 1)
            there = (Linear(0, {free: 1}),)
            put = store_both((self.keys[target], there), (self.places[target], there), (key, place))
            return put, _increment(self.counts, counter)

        return (self._elements(move, picked),)


def _increment(counts: Buffer, at: tuple[Linear, ...]) -> Stmt:
    return Store(((counts, at),), (const(1, DType.i32),), "sum")
