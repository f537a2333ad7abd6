"""Nests of extern stages, written in loop IR.

@extern_nest("reverse")
def reverse(row: Row) -> tuple[Stmt, ...]:
    n = row.inner(row.inputs[0])[0]
    return (row.loop(n, lambda i: (row.store(0, (i,), row.load(0, (i * -1 + (n - 1),))),)),)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autotune.errors import LoweringError
from autotune.lower.ir import LOCAL, REGISTER, Buffer, Condition, For, If, Load, Stmt, Store
from autotune.schedule.state import VECTORIZE
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr
from autotune.tensor.linear import Linear
from autotune.tensor.stage import Tensor

Place = tuple[Buffer, tuple[Linear, ...]]
Locate = Callable[[Tensor, Sequence[Linear]], Place]
LANES = 16
"""Elements of a row that are worked on at once: a vector of f32 with AVX-512, two with AVX2."""


@dataclass(slots=True)
class Row:
    """One row of an extern stage: what its nest may read, write and use.

    Attributes:
        stage: its name; loop variables and scratch are named after it.
        inputs, outputs: tensors; the first dimensions are the rows, unless an input is `shared` (their numbers): then
            every row reads all of it.
        attrs: the function's integers.
        rows: the row, as a function of the loops outside.
        locate: where an element of a tensor lies, whatever its layout.
        scratch: buffers of the thread that the nest asked for.
    """

    stage: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attrs: Mapping[str, int]
    rows: tuple[Linear, ...]
    locate: Locate
    shared: frozenset[int] = frozenset()
    scratch: list[Buffer] = field(default_factory=list)
    loops: int = 0

    def inner(self, t: Tensor) -> tuple[int, ...]:
        """Extents of one row of a tensor."""
        return t.shape[len(self.rows) :]

    def load(self, number: int, indices: Sequence[Linear]) -> Load:
        """An element of this row of an input, or of a shared one."""
        rows = () if number in self.shared else self.rows
        return Load(*self.locate(self.inputs[number], (*rows, *indices)))

    def output(self, number: int, indices: Sequence[Linear]) -> Place:
        """The place of an element of this row of an output."""
        return self.locate(self.outputs[number], (*self.rows, *indices))

    def buffer(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        """Scratch of the thread; it holds nothing at first."""
        buffer = Buffer(f"{self.stage}.{name}", dtype, shape, LOCAL)
        self.scratch.append(buffer)
        return buffer

    def register(self, name: str, dtype: DType) -> Place:
        """The place of one number that is kept in a register."""
        return self.registers(name, dtype, 1), (Linear(),)

    def registers(self, name: str, dtype: DType, lanes: int) -> Buffer:
        """Numbers that are kept in registers."""
        buffer = Buffer(f"{self.stage}.{name}", dtype, (lanes,), REGISTER)
        self.scratch.append(buffer)
        return buffer

    def loop(self, extent: int, body: Callable[[Linear], Sequence[Stmt]]) -> For:
        """`body(i)` for i in 0..extent, one after the other."""
        self.loops += 1
        var = f"{self.stage}.x{self.loops}"
        return For(var, 0, extent, "", tuple(body(Linear.var(var))))

    def each(self, extents: Sequence[int], body: Callable[[tuple[Linear, ...]], Sequence[Stmt]]) -> tuple[Stmt, ...]:
        """`body(i, j, ...)` for all points of a box, in any order: neighbours along the last axis become lanes."""
        if not extents:
            return tuple(body(()))
        if len(extents) > 1:
            return (self.loop(extents[0], lambda i: self.each(extents[1:], lambda rest: body((i, *rest)))),)
        whole, rest = divmod(extents[0], LANES)
        nests = []
        if whole:

            def block(i: Linear) -> tuple[Stmt, ...]:
                return (replace(self.loop(LANES, lambda lane: body((i * LANES + lane,))), mark=VECTORIZE),)

            nests.append(self.loop(whole, block))
        if rest:
            nests.append(self.loop(rest, lambda i: body((i + whole * LANES,))))
        return tuple(nests)


Nest = Callable[[Row], tuple[Stmt, ...]]
_NESTS: dict[str, Nest] = {}


def extern_nest(name: str) -> Callable[[Nest], Nest]:
    """Register the nest of an extern function."""

    def register(fn: Nest) -> Nest:
        _NESTS[name] = fn
        return fn

    return register


def nest_of(name: str) -> Nest:
    """
    Raises:
        LoweringError: the function has a value but no nest.
    """
    if name not in _NESTS:
        known = ", ".join(sorted(_NESTS))
        raise LoweringError(f"extern function {name!r} has no nest: register one with extern_nest; there are: {known}")
    return _NESTS[name]


def store(place: Place, value: Expr) -> Store:
    """Write one element."""
    return Store((place,), (value,))


def store_both(first: Place, second: Place, values: tuple[Expr, Expr]) -> Store:
    """Write two elements; both values are computed before either is written."""
    return Store((first, second), values)


def where(conditions: Sequence[Condition], body: Sequence[Stmt]) -> If:
    """`body` where all conditions hold; a position holds when it is >= 0."""
    return If(tuple(conditions), tuple(body))
