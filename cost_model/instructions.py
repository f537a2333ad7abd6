"""Instructions: how many of each kind loops execute, as a compiler leaves them.

What does not move with the innermost loops is computed outside of them, what is alike in several copies of an unrolled
body only once, and what the registers have no room for is stored and loaded again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.core import Pipe
from autotune.lower.ir import (
    REGISTER,
    Buffer,
    For,
    If,
    Index,
    Load,
    Stmt,
    Store,
    body_of,
    expressions,
    statements,
    variables,
)
from autotune.schedule.dot_products import BF16_WIDENING, DOT_PRODUCTS, FOR_ALL_LANES, TILE_STORE, WIDENING, on_tiles
from autotune.schedule.state import PARALLEL, SERIAL, UNROLL, VECTORIZE
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr, Table, children, walk
from autotune.tensor.linear import Div, Linear, Mod

Integers = NDArray[np.int64]

ENUMERATED = 65536
"""Turns of loops in which a position is looked at; of more, a condition is taken to hold."""
ONE_EACH = 2
"""Registers that hold a factor each while a tile is multiplied."""

_HALVES = (DType.f16, DType.bf16)


@dataclass(slots=True)
class Instructions:
    """Of vectors, or of numbers where nothing is vectorised.

    Attributes:
        arithmetic: cycles in which multiply-adds, and all else that is computed, can start.
        waiting: cycles in which sums wait for their last term, one after the other.
        loads, stores: how many.
    """

    arithmetic: float = 0.0
    waiting: float = 0.0
    loads: float = 0.0
    stores: float = 0.0


def counted(body: Sequence[Stmt], around: Sequence[For], target: Target) -> Instructions:
    """What statements do in all turns of the loops around them."""
    counter = _Counter(body, target)
    counter.visit(body, tuple(around), 1.0)
    return counter.found


class _Counter:
    def __init__(self, body: Sequence[Stmt], target: Target) -> None:
        self.found, self._target = Instructions(), target
        kept = {b.name: b for stmt in statements(tuple(body)) for b in _buffers(stmt) if b.scope == REGISTER}
        live = sum(-(-b.bytes * 8 // target.vector_bits) for b in kept.values())
        room = target.num_vector_registers - ONE_EACH
        self._spilled = max(0, live - room) / max(live, 1)
        self._rate = adding(target).per_cycle

    def visit(self, body: Iterable[Stmt], loops: tuple[For, ...], share: float) -> None:
        for stmt in body:
            if isinstance(stmt, For) and on_tiles(stmt.mark):
                self._rows(stmt, loops, share)
            elif isinstance(stmt, Store):
                self._store(_Place(loops, share, stmt.targets[0][0], self._target), stmt)
            elif isinstance(stmt, For):
                self.visit(stmt.body, (*loops, stmt), share)
            else:
                holds = self._tested(stmt, loops, share) if isinstance(stmt, If) else 1.0
                self.visit(body_of(stmt), loops, share * holds)

    def _rows(self, rows: For, loops: tuple[For, ...], share: float) -> None:
        """An instruction of tiles: row after row, so that no sum waits for its last term, and each row is a vector."""
        inside = [x for x in statements((rows,)) if isinstance(x, For)]
        stores = [x for x in statements((rows,)) if isinstance(x, Store)]
        every = share * math.prod(x.extent for x in loops)
        if rows.mark == TILE_STORE:
            self.found.stores += every * rows.extent
            return
        dot = DOT_PRODUCTS[rows.mark]
        pipe = self._target.core.pipe(dot.pipe, self._target.vector_bits)
        lanes = next(x.var for x in inside if x.mark == VECTORIZE)
        for stmt in (x for x in stores if x.fold):
            self.found.arithmetic += every * max(rows.extent / pipe.per_cycle, pipe.latency) if pipe else math.inf
            groups = math.prod(x.extent for x in inside if x.var in _folded_by(stmt)) / dot.extent
            for e in (e for value in stmt.values for e in walk(value) if isinstance(e, Load)):
                over = variables(e)
                self.found.loads += share * _times(loops, over) * (groups if lanes in over else rows.extent)

    def _tested(self, stmt: If, loops: tuple[For, ...], share: float) -> float:
        """Share of the turns in which the conditions on positions hold."""
        forms = [c for c in stmt.when if isinstance(c, Linear) and not c.is_opaque]
        names = {name for c in forms for name in c.variables()}
        moving = [x for x in loops if x.var in names]
        if any(_rolled(x) for x in moving):  # else known while compiling
            compared, jumps = _times(loops, names), _times(loops, {x.var for x in loops})
            self.found.arithmetic += share * (compared + jumps) / self._rate
        at = _points(moving)
        return float(np.mean(np.logical_and.reduce([values_at(c, at) >= 0 for c in forms]))) if at else 1.0

    def _store(self, at: _Place, stmt: Store) -> None:
        buffer, indices = stmt.targets[0]
        moving = {name for index in indices for name in index.variables()}
        for value in stmt.values:
            self._compute(at, value, folded=stmt.fold == "sum")
        if stmt.fold:
            every = at.times(x.var for x in at.loops) * math.prod(map(nonzero, stmt.values))
            rate, latency = at.adding
            self.found.arithmetic += every / rate
            # The sums of a tile wait for their own last terms only.
            self.found.waiting += every / at.copies(moving) * latency
            moving |= {x.var for x in at.loops if x.mark == SERIAL} if buffer.scope == REGISTER else set()
        elif all(isinstance(value, Const) for value in stmt.values):
            return  # the beginning of a sum
        if buffer.scope != REGISTER:
            self.found.stores += at.times(moving) * at.vectors(buffer, indices)
        else:
            self.found.stores += at.times(moving) * self._spilled
            self.found.loads += at.times(moving) * self._spilled if stmt.fold else 0.0

    def _compute(self, at: _Place, e: Expr, *, folded: bool) -> None:
        """Args:
        folded: what is computed is added, which multiplications do by themselves.
        """
        if isinstance(e, (Const, Index, Table)):
            return
        over = variables(e)
        if isinstance(e, Load):
            in_memory = e.buffer.scope != REGISTER
            self.found.loads += at.times(over) * (at.vectors(e.buffer, e.indices) if in_memory else self._spilled)
            self.found.arithmetic += at.times(over) * at.widening / at.rate
            return
        op = e.op if isinstance(e, Binary) else ""
        if isinstance(e, Cast) and isinstance(e.a, Load) and e.a.dtype in _HALVES and not at.swallowed:
            self.found.arithmetic += at.times(over) * at.widened(e.a.dtype, over) / at.rate
        elif not at.swallowed and e.dtype is not DType.bool and not (folded and op == "mul" and e.dtype.is_float):
            self.found.arithmetic += at.times(over) * (_multiplying(e) if op == "mul" else 1.0) / at.rate
        for below in children(e):
            self._compute(at, below, folded=op in ("add", "sub"))


def adding(target: Target) -> Pipe:
    """Where multiply-adds of vectors start."""
    pipe = target.core.pipe("fma.f32", target.vector_bits)
    assert pipe is not None  # a target's core has it
    return pipe


class _Place:
    """Where a statement stands.

    Args:
        share: of the turns of the loops in which it is executed.
        buffer: that it writes.
    """

    def __init__(self, loops: tuple[For, ...], share: float, buffer: Buffer, target: Target) -> None:
        self.loops, self.share = loops, share
        self._vector = next((x for x in loops if x.mark == VECTORIZE), None)
        self._lanes = self._vector.extent if self._vector else 1
        self._wide = target.lanes(buffer.dtype.bytes)
        self._width = -(-self._lanes // self._wide)
        pipe = adding(target)
        self.rate = pipe.per_cycle
        # An instruction that folds neighbours multiplies them by itself, and mostly widens them, too.
        dot = next((DOT_PRODUCTS[x.mark] for x in loops if x.mark in DOT_PRODUCTS), None)
        fast = target.core.pipe(dot.pipe, target.vector_bits) if dot else None
        self.swallowed, steps = dot is not None, dot.steps if dot else 1
        self.widening = WIDENING if dot is not None and dot.widened else 0.0
        self.adding = ((fast or pipe).per_cycle / steps, (fast or pipe).latency)

    def times(self, over: Iterable[str]) -> float:
        """Instructions for what moves with some loops."""
        return self.share * _times(self.loops, set(over), self._width)

    def copies(self, over: Collection[str]) -> int:
        """Of what moves with some loops: how many there are in one turn of the innermost that is not unrolled."""
        unrolled = math.prod(x.extent for x in self.loops if x.mark == UNROLL and x.var in over)
        return unrolled * (self._width if self._vector and self._vector.var in over else 1)

    def widened(self, dtype: DType, over: Collection[str]) -> int:
        """Instructions that make f32 of a vector of such elements, or of a number for all lanes."""
        if self._vector is not None and self._vector.var not in over:
            return FOR_ALL_LANES
        return BF16_WIDENING if dtype is DType.bf16 else 1

    def vectors(self, buffer: Buffer, indices: Sequence[Linear]) -> int:
        """Instructions that move what the lanes of a vector touch: one for each vector of memory in which that lies."""
        place = sum((i * stride for i, stride in zip(indices, buffer.strides)), Linear())
        if self._vector is None or self._vector.var not in place.variables():
            return 1
        if place.is_opaque:
            return self._wide
        turning = {name for x in place.terms if isinstance(x, (Div, Mod)) for name in x.arg.variables()}
        others = [x for x in self.loops if x is not self._vector]
        at = {x.var: np.array([[x.begin]]) for x in others}
        at |= {name: n[:, None] for name, n in _points([x for x in others if x.var in turning]).items()}
        at[self._vector.var] = np.arange(min(self._wide, self._lanes))[None, :] + self._vector.begin
        places = values_at(place, at)
        steps = places - places.min(axis=1, keepdims=True)
        if (steps != steps[0]).any():  # no one order of lanes that could be told beforehand
            return self._wide
        return len(np.unique(steps[0] // self._wide))


def _folded_by(stmt: Store) -> set[str]:
    """Variables with which the terms of a sum move, and the sum does not."""
    kept = {name for _, indices in stmt.targets for index in indices for name in index.variables()}
    return {name for value in stmt.values for name in variables(value)} - kept


def _times(loops: Sequence[For], over: Collection[str], width: int = 1) -> float:
    """How often that is done which moves with some loops, `width` times for all turns of a vectorised one."""
    deepest = max((n for n, x in enumerate(loops) if x.var in over and _rolled(x)), default=-1)
    count = 1.0
    for n, x in enumerate(loops):
        if x.mark == VECTORIZE:
            count *= width if x.var in over else 1
        elif x.mark not in DOT_PRODUCTS and (n <= deepest or x.var in over):
            count *= x.extent
    return count


def _rolled(loop: For) -> bool:
    return loop.mark in (SERIAL, PARALLEL)


def nonzero(value: Expr) -> float:
    """Share of the products with a small matrix that are left."""
    tables = [e for e in children(value) if isinstance(e, Table)]
    return math.prod(sum(v != 0 for v in table.values) / len(table.values) for table in tables)


def _multiplying(product: Expr) -> float:
    """Share of the products with a small matrix that multiply: not with 0, 1 or -1."""
    tables = [e for e in children(product) if isinstance(e, Table)]
    return math.prod(sum(abs(v) not in (0, 1) for v in table.values) / len(table.values) for table in tables)


def _buffers(stmt: Stmt) -> list[Buffer]:
    read = [e.buffer for e in expressions(stmt) if isinstance(e, Load)]
    return read + [buffer for buffer, _ in stmt.targets] if isinstance(stmt, Store) else read


def _points(loops: Sequence[For]) -> dict[str, Integers]:
    """(points,) the variable of each loop in all turns of all; none where these are too many."""
    if not loops or math.prod(x.extent for x in loops) > ENUMERATED:
        return {}
    grid = np.meshgrid(*(np.arange(x.begin, x.begin + x.extent) for x in loops))
    return {x.var: values.ravel() for x, values in zip(loops, grid)}


def values_at(form: Linear, at: Mapping[str, Integers]) -> Integers:
    """The values of a form where its variables have those of `at`."""
    total = np.array(form.const)
    for term, factor in form.terms.items():
        if isinstance(term, Div):
            total = total + factor * (values_at(term.arg, at) // term.divisor)
        elif isinstance(term, Mod):
            total = total + factor * (values_at(term.arg, at) % term.divisor)
        elif isinstance(term, str):
            total = total + factor * at[term]
    return total
