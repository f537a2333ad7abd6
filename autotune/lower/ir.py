"""Loop IR: the nest of loops, stores and guards that a kernel executes.

Indices are `Linear` forms over loop variables, one per physical dimension of a buffer. Values are the expressions of
`autotune.tensor` with `Read` replaced by `Load` and axes by `Index`.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Union

from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr, Lookup, Reinterpret, Select, Table, Unary, children, walk
from autotune.tensor.layout import Layout
from autotune.tensor.linear import Linear, Ranges, undivided

OPERAND, SHARED, LOCAL, REGISTER, TILE = "operand", "shared", "local", "register", "tile"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that a kernel touches: an operand, or scratch (shared, per thread, registers, or matrix registers)."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    scope: str

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate(self.shape[:0:-1], operator.mul, initial=1))[::-1] if self.shape else ()

    def place(self, indices: Sequence[Linear]) -> Linear:
        """Of an element, from the start."""
        return Linear.combined(zip(indices, self.strides))

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.bytes


Condition = Union[Linear, Expr]
"""A Linear that must be >= 0, or a boolean expression."""


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """An element of a buffer; `otherwise` where a condition of `when` fails (the memory is not touched then)."""

    buffer: Buffer
    indices: tuple[Linear, ...]
    when: tuple[Condition, ...] = ()
    otherwise: Const | None = None

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.buffer.dtype

    def __str__(self) -> str:
        text = f"{self.buffer.name}[{', '.join(map(str, self.indices))}]"
        return f"({text} if {show(self.when)} else {self.otherwise})" if self.when else text


@dataclass(frozen=True, slots=True)
class Index(Expr):
    """A quasi-affine integer used as a value."""

    value: Linear
    dtype: DType = DType.i64

    def __str__(self) -> str:
        return f"({self.value})"


@dataclass(frozen=True, slots=True)
class Apart(Expr):
    """Whether an operand that is read is other memory than one that is written: a caller may hand in one for both."""

    read: Buffer
    written: Buffer
    dtype: DType = DType.bool

    def __str__(self) -> str:
        return f"{self.read.name} apart from {self.written.name}"


@dataclass(frozen=True, slots=True)
class For:
    """`body` for var = begin .. begin + extent - 1; `mark` is "", "parallel", "vectorize", "unroll" or an instruction.

    Where the loop variable `turn` is odd, the iterations (those of one thread) run from the last to the first.
    """

    var: str
    begin: int
    extent: int
    mark: str
    body: tuple[Stmt, ...]
    turn: str = ""

    def around(self, body: tuple[Stmt, ...]) -> For:
        """The same loop around other statements; several times as fast as `replace`."""
        return For(self.var, self.begin, self.extent, self.mark, body, self.turn)


@dataclass(frozen=True, slots=True)
class If:
    """`body` where all conditions hold."""

    when: tuple[Condition, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """Write values to one element of each buffer; with `fold`, combine them into it (sum, prod, max, min)."""

    targets: tuple[tuple[Buffer, tuple[Linear, ...]], ...]
    values: tuple[Expr, ...]
    fold: str | None = None


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Ask for the cache line of an element, into cache `level` (1: the nearest).

    `coming`: it stands for requests that `lower.coming` makes, in parts of so many bytes if possible; `early`: it is
    one of those, made while something else is worked on, and not a few turns ahead.
    """

    buffer: Buffer
    indices: tuple[Linear, ...]
    level: int
    coming: int = 0
    early: bool = False

    @property
    def place(self) -> Linear:
        """Of the element, from the start of its buffer."""
        return self.buffer.place(self.indices)

    def at(self, place: Linear) -> Prefetch:
        """The same of another element, by its place from the start."""
        return replace(self, indices=(*(Linear(),) * (len(self.buffer.shape) - 1), place))


@dataclass(frozen=True, slots=True)
class Once:
    """`body` on thread 0 only."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """No thread goes on before all threads are here."""


Stmt = Union[For, If, Store, Prefetch, Once, Barrier]


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer that the caller provides.

    Attributes:
        name: tensor name in the ComputeDef.
        dtype: element type.
        shape: logical shape.
        layout: physical form.
        role: "input" or "output".
        constant: a weight, packed once at compile time.
        prepared: how a constant follows from the workload's own constants; None when it is one of them.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    layout: Layout
    role: str
    constant: bool = False
    prepared: ComputeDef | None = None

    @property
    def bytes(self) -> int:
        return self.layout.elements(self.shape) * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class LoopProgram:
    """A kernel as loops.

    Attributes:
        name: symbol of the kernel.
        operands: in frame order.
        buffers: every buffer; operands first, in the same order.
        body: statements that each thread executes.
    """

    name: str
    operands: tuple[Operand, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]


def show(conditions: tuple[Condition, ...]) -> str:
    return " and ".join(f"{c} >= 0" if isinstance(c, Linear) else str(c) for c in conditions)


def body_of(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.body if isinstance(stmt, (For, If, Once)) else ()


def with_body(stmt: Stmt, body: tuple[Stmt, ...]) -> Stmt:
    if isinstance(stmt, For):
        return stmt.around(body)
    if isinstance(stmt, If):
        return If(stmt.when, body)
    return Once(body) if isinstance(stmt, Once) else stmt


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements, parents first."""
    todo = list(reversed(body))
    while todo:
        stmt = todo.pop()
        yield stmt
        todo += reversed(body_of(stmt))


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """Every expression of one statement (not of those inside it), those in conditions and indices included."""
    conditions: tuple[Condition, ...] = stmt.when if isinstance(stmt, If) else ()
    if isinstance(stmt, Store):
        conditions = (*stmt.values, *(i for _, indices in stmt.targets for i in indices))
    for c in conditions:
        yield from _within(c)


def _within(c: Condition) -> Iterator[Expr]:
    if isinstance(c, Linear) and not c.is_opaque:
        return
    for root in c.opaque() if isinstance(c, Linear) else (c,):
        for e in walk(root):
            yield e
            parts: tuple[Condition, ...] = ()
            if isinstance(e, Load):
                parts = (*e.when, *e.indices)
            elif isinstance(e, Index):
                parts = (e.value,)
            for part in parts:
                if not isinstance(part, Linear) or part.is_opaque:
                    yield from _within(part)


def variables(e: Expr) -> frozenset[str]:
    """The loop variables that a value depends on, through indices and conditions too."""
    found: set[str] = set()
    for part in _within(e):
        forms: tuple[Condition, ...] = (part.value,) if isinstance(part, Index) else ()
        if isinstance(part, Load):
            forms = (*part.when, *part.indices)
        for form in forms:
            if isinstance(form, Linear):
                found.update(form.variables())
    return frozenset(found)


def map_linears(stmt: Stmt, fn: Callable[[Linear], Linear]) -> Stmt:
    """Rebuild a statement and all below with every index and affine condition mapped."""

    def conditions(when: tuple[Condition, ...]) -> tuple[Condition, ...]:
        return tuple(opaque(c) if isinstance(c, Linear) else map_expr(c, leaf) for c in when)

    def opaque(value: Linear) -> Linear:
        """Indirect indices hold expressions; map those too."""
        new = fn(value)
        return new.map_opaque(lambda e: map_expr(e, leaf)) if new.is_opaque else new

    def leaf(e: Expr) -> Expr:
        if isinstance(e, Load):
            return Load(e.buffer, tuple(map(opaque, e.indices)), conditions(e.when), e.otherwise)
        return Index(opaque(e.value)) if isinstance(e, Index) else e

    def mapped(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            targets = tuple((b, tuple(map(opaque, i))) for b, i in stmt.targets)
            return Store(targets, tuple(map_expr(v, leaf) for v in stmt.values), stmt.fold)
        if isinstance(stmt, Prefetch):
            return replace(stmt, indices=tuple(map(opaque, stmt.indices)))
        if isinstance(stmt, If):
            return If(conditions(stmt.when), tuple(map(mapped, stmt.body)))
        return with_body(stmt, tuple(map(mapped, body_of(stmt))))

    return mapped(stmt)


def map_expr(e: Expr, leaf: Callable[[Expr], Expr], leaves: tuple[type[Expr], ...] = (Load, Index)) -> Expr:
    """Rebuild an expression with nodes of the types `leaves` mapped; shared nodes stay shared."""
    return _map(e, leaf, leaves, {})


def _map(e: Expr, leaf: Callable[[Expr], Expr], leaves: tuple[type[Expr], ...], done: dict[int, Expr]) -> Expr:
    if id(e) in done:
        return done[id(e)]
    if isinstance(e, leaves):
        new = leaf(e)
    else:
        below = children(e)
        mapped = [_map(c, leaf, leaves, done) for c in below]
        new = e if all(a is b for a, b in zip(mapped, below)) else _rebuild(e, mapped)
    done[id(e)] = new
    return new


def _rebuild(e: Expr, below: list[Expr]) -> Expr:
    if isinstance(e, Binary):
        affine = _affine(e.op, below[0], below[1])
        return Binary(e.op, below[0], below[1], e.dtype) if affine is None else affine
    if isinstance(e, Unary):
        return Unary(e.op, below[0], e.dtype)
    if isinstance(e, Select):
        return Select(below[0], below[1], below[2], e.dtype)
    if isinstance(e, Cast):
        return Cast(below[0], e.dtype)
    if isinstance(e, Reinterpret):
        return Reinterpret(below[0], e.dtype)
    if isinstance(e, Lookup):
        return Lookup(e.values, below[0], e.dtype)
    assert isinstance(e, Table)
    return Table(e.name, e.values, e.shape, tuple(below), e.dtype)


def _affine(op: str, a: Expr, b: Expr) -> Index | None:
    """Arithmetic on positions stays one position, so that passes can tell what it is compared with."""
    if a.dtype is not DType.i64 or b.dtype is not DType.i64:
        return None
    x, y = (Linear(int(e.value)) if isinstance(e, Const) else e.value if isinstance(e, Index) else None for e in (a, b))
    if x is None or y is None:
        return None
    if op in ("add", "sub"):
        return Index(x + y if op == "add" else x - y)
    if op == "mul" and (x.is_const or y.is_const):
        return Index(y * x.const if x.is_const else x * y.const)
    if op in ("floordiv", "floormod") and y.is_const and y.const > 0:
        return Index(x.floordiv(y.const, {}) if op == "floordiv" else x.floormod(y.const, {}))
    return None


def as_conditions(e: Expr) -> tuple[Linear, ...] | None:
    """Forms that are all >= 0 exactly where `e` holds, when it is a conjunction of comparisons of positions."""
    if not isinstance(e, Binary):
        return None
    if e.op == "and" and e.dtype is DType.bool:
        a, b = as_conditions(e.a), as_conditions(e.b)
        return None if a is None or b is None else a + b
    difference = _affine("sub", e.a, e.b)
    if difference is None or e.op not in ("lt", "le", "gt", "ge"):
        return None
    d = difference.value
    return (undivided({"lt": d * -1 - 1, "le": d * -1, "gt": d - 1, "ge": d}[e.op]),)


def loop_ranges(stmt: For, ranges: Ranges) -> dict[str, tuple[int, int]]:
    """The ranges inside a loop."""
    return {**ranges, stmt.var: (stmt.begin, stmt.begin + max(stmt.extent, 1) - 1)}
