"""Nest of `tree_leaves`: a row walks down several trees side by side, so that it waits for their memory at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.lower.extern import Row, extern_nest, store
from autotune.lower.ir import For, Load, Stmt
from autotune.schedule.state import UNROLL
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Reinterpret, binary, const, select
from autotune.tensor.linear import Linear, low_bits
from autotune.tensor.trees import LIMIT, LINK

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
    (columns,), nodes = row.inner(row.inputs[0]), row.inputs[1].shape[0]
    dtype = row.inputs[0].dtype
    word = DType.u32 if dtype is DType.f32 else DType.u64
    here = row.registers(f"node{count}", word, count)

    def each(step: Callable[[Linear], Stmt]) -> For:
        return replace(row.loop(count, lambda n: (step(n),)), mark=UNROLL)

    def begin(n: Linear) -> Stmt:
        return store((here, (n,)), Reinterpret(row.load(2, (first + n,)), word))

    def node(n: Linear, part: int) -> Expr:
        return row.load(1, (Linear(0, {low_bits(Load(here, (n,)), nodes): 1}), Linear(part)))

    def step(n: Linear) -> Stmt:
        link = Reinterpret(node(n, LINK), word)
        value = row.load(0, (Linear(0, {low_bits(link, columns): 1}),))
        below = binary("shr", link, const(columns.bit_length() - 1, word))
        # A sum, not a choice: which way a row goes is as good as random, and a branch would be guessed wrong.
        stays = value <= Reinterpret(node(n, LIMIT), dtype)
        return store((here, (n,)), below + select(stays, const(0, word), const(1, word)))

    def put(n: Linear) -> Stmt:
        return store(row.output(0, (first + n,)), node(n, LIMIT))

    return each(begin), row.loop(row.attrs["depth"], lambda _: (each(step),)), each(put)
