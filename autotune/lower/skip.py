"""Terms of a sum whose every factor is zero under one condition are skipped there instead of added.

rewrite:
    s += (a[i] if c else 0) * (b[j] if c else 0)
    -->
    if c: s += a[i] * b[j]
"""

from __future__ import annotations

from dataclasses import replace

from autotune.lower.ir import Condition, If, Load, Stmt, Store, body_of, map_expr, with_body
from autotune.tensor.expr import Binary, Cast, Const, Expr
from autotune.tensor.linear import Linear


def skip_zeros(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The nest with such conditions around their statements; simplifying moves them outwards."""
    return tuple(_visit(stmt) for stmt in body)


def _visit(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Store):
        return with_body(stmt, skip_zeros(body_of(stmt)))
    if stmt.fold != "sum":
        return stmt
    shared = _shared(stmt.values[0])
    if not shared:
        return stmt

    def leaf(e: Expr) -> Expr:
        if not isinstance(e, Load):
            return e
        when = tuple(c for c in e.when if c not in shared)
        return Load(e.buffer, e.indices, when, e.otherwise if when else None)

    return If(shared, (replace(stmt, values=(map_expr(stmt.values[0], leaf),)),))


def _shared(value: Expr) -> tuple[Condition, ...]:
    """The affine conditions without which every factor of a product is zero."""
    factors = list(_factors(value))
    conditions: list[tuple[Condition, ...]] = []
    for f in factors:
        if not isinstance(f, Load) or not isinstance(f.otherwise, Const) or f.otherwise.value != 0:
            return ()
        conditions.append(f.when)
    first, *others = conditions
    return tuple(c for c in first if isinstance(c, Linear) and all(c in when for when in others)) if others else ()


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op == "mul":
        return _factors(e.a) + _factors(e.b)
    return _factors(e.a) if isinstance(e, Cast) else [e]
