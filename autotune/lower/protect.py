"""Guards around loads, where guards around stores would cost more, and around statements."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.lower.ir import Buffer, Condition, If, Load, Stmt, map_expr
from autotune.tensor.expr import Expr, const
from autotune.tensor.linear import Linear, Ranges


def exists(buffer: Buffer, indices: tuple[Linear, ...], ranges: Ranges) -> bool:
    """Whether the position is inside the buffer whatever the loops do."""
    bounds = [index.range(ranges) for index in indices]
    return all(0 <= lo and hi < extent for (lo, hi), extent in zip(bounds, buffer.shape, strict=True))


def protected(value: Expr, guards: tuple[Condition, ...], ranges: Ranges) -> Expr:
    """The value, with memory that may not exist only read where the guards hold; anything where they do not."""

    def protect(e: Expr) -> Expr:
        assert isinstance(e, Load)
        when = tuple(inside(c) if isinstance(c, Expr) else c for c in e.when)
        indices = tuple(i.map_opaque(inside) for i in e.indices)
        if exists(e.buffer, e.indices, ranges):
            return Load(e.buffer, indices, when, e.otherwise)
        otherwise = const(0, e.dtype) if e.otherwise is None else e.otherwise
        # A guard on what the place does not depend on would only make lanes differ.
        moving = {v for i in e.indices for v in i.variables()}
        opaque = any(i.is_opaque for i in e.indices)
        own = [c for c in guards if opaque or not isinstance(c, Linear) or not moving.isdisjoint(c.variables())]
        return Load(e.buffer, indices, (*own, *when), otherwise)

    def inside(e: Expr) -> Expr:
        return map_expr(e, protect, (Load,))

    return inside(value)


def guarded(stmt: Stmt, guards: Sequence[Condition]) -> list[Stmt]:
    """The statement where all guards hold; those that look something up are tested where the others hold, since
    elsewhere there is nothing to look at."""
    for kind in (Expr, Linear):
        tested = tuple(g for g in guards if isinstance(g, kind))
        stmt = If(tested, (stmt,)) if tested else stmt
    return [stmt]
