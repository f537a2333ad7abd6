"""Nest of `tree_leaves`: a row walks down several trees side by side, so that it waits for their memory at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.lower.extern import Row, extern_nest, store
from autotune.lower.ir import For, Load, Stmt
from autotune.schedule.state import UNROLL
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Reinterpret, Unary, binary, cast, const, select
from autotune.tensor.linear import Linear, clamp_unsigned
from autotune.tensor.trees import BELOW, CODE, FIRST, LIMIT, MIXED, NAN_GOES_ON, STEP

ABREAST = 8
"""Trees at a time: as many nodes as general registers hold beside what a step needs."""


@extern_nest("tree_leaves")
def tree_leaves(row: Row) -> tuple[Stmt, ...]:
    trees = row.inputs[2].shape[0]
    whole, rest = divmod(trees, ABREAST)
    body: list[Stmt] = []
    if whole:
        body.append(row.loop(whole, lambda block: _walk(row, block * ABREAST, ABREAST)))
    if rest:
        body += _walk(row, Linear(whole * ABREAST), rest)
    return tuple(body)


def _walk(row: Row, first: Linear, count: int) -> Sequence[Stmt]:
    """The leaves of `count` trees from `first` on."""
    (features,), nodes = row.inner(row.inputs[0]), row.inputs[1].shape[0]
    here = row.registers(f"node{count}", DType.i32, count)

    def each(step: Callable[[Linear], Stmt]) -> For:
        return replace(row.loop(count, lambda n: (step(n),)), mark=UNROLL)

    def begin(n: Linear) -> Stmt:
        return store((here, (n,)), row.load(2, (first + n,)))

    def step(n: Linear) -> Stmt:
        node = Linear(0, {clamp_unsigned(Load(here, (n,)), nodes - 1): 1})
        code, below, further = (row.load(1, (node, Linear(word))) for word in (CODE, BELOW, STEP))
        feature = binary("shr", code, const(1, DType.i32))
        value = row.load(0, (Linear(0, {clamp_unsigned(feature, features - 1): 1}),))
        stays = _goes_first(row, value, _limit(row, node), code)
        # A product, not a choice: which way a row goes is as good as random, and a branch would be guessed wrong.
        away = select(stays, const(0, DType.i32), const(1, DType.i32))
        return store((here, (n,)), below + away * further)

    def put(n: Linear) -> Stmt:
        return store(row.output(0, (first + n,)), Load(here, (n,)))

    return each(begin), row.loop(row.attrs["depth"], lambda _: (each(step),)), each(put)


def _limit(row: Row, node: Linear) -> Expr:
    words = [row.load(1, (node, Linear(LIMIT + n))) for n in range(row.inputs[0].dtype.bytes // 4)]
    if len(words) == 1:
        return Reinterpret(words[0], DType.f32)
    low, high = (cast(DType.u64, Reinterpret(word, DType.u32)) for word in words)
    return Reinterpret(binary("or", low, binary("shl", high, const(32, DType.u64))), DType.f64)


def _goes_first(row: Row, value: Expr, limit: Expr, code: Expr) -> Expr:
    """Whether a row takes the first branch. A comparison with NaN does not hold."""
    if row.attrs["nan"] == FIRST:
        return Unary("not", value > limit, DType.bool)
    if row.attrs["nan"] != MIXED:
        return value <= limit
    marked = binary("ne", binary("and", code, const(NAN_GOES_ON, DType.i32)), const(0, DType.i32))
    return binary("or", value <= limit, binary("and", binary("ne", value, value), marked))
