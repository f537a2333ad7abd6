"""Simplification of loop nests: guards that always or never hold, loops of one round, guards moved outwards."""

from __future__ import annotations

from dataclasses import replace

from autotune.lower.ir import (
    Condition,
    For,
    If,
    Load,
    Stmt,
    Store,
    as_conditions,
    body_of,
    loop_ranges,
    map_expr,
    map_linears,
    statements,
    variables,
    with_body,
)
from autotune.tensor.expr import Const, Expr, Select, walk
from autotune.tensor.linear import Linear, Ranges

_GONE = ("", "unroll", "vectorize")
"""Marks of loops of which nothing is left when they turn once."""

Facts = tuple[Condition, ...]
"""What is known to hold."""


def simplify(body: tuple[Stmt, ...], ranges: Ranges | None = None, facts: Facts = ()) -> tuple[Stmt, ...]:
    """An equal nest with fewer guards and loops."""
    out: list[Stmt] = []
    for stmt in body:
        out += _simplify(stmt, ranges or {}, facts)
    return tuple(out)


def decide(c: Condition, ranges: Ranges, facts: Facts) -> bool | None:
    """Whether a condition always holds, never holds, or depends."""
    if isinstance(c, Const):
        return bool(c.value)
    if not isinstance(c, Linear):
        return True if c in facts else None
    lo, hi = c.range(ranges)
    if lo >= 0:
        return True
    if hi < 0:
        return False
    forms = (fact for fact in facts if isinstance(fact, Linear))
    return True if any((c - form).range(ranges)[0] >= 0 for form in forms) else None


def _simplify(stmt: Stmt, ranges: Ranges, facts: Facts) -> list[Stmt]:
    if isinstance(stmt, For):
        return _loop(stmt, ranges, facts)
    if isinstance(stmt, If):
        return _guard(stmt, ranges, facts)
    if isinstance(stmt, Store):
        return [Store(stmt.targets, tuple(_value(v, ranges, facts) for v in stmt.values), stmt.fold)]
    if body_of(stmt):
        inner = simplify(body_of(stmt), ranges, facts)
        return [with_body(stmt, inner)] if inner else []
    return [stmt]


def _loop(stmt: For, ranges: Ranges, facts: Facts) -> list[Stmt]:
    if stmt.extent <= 0:
        return []
    body = stmt.body
    if stmt.extent == 1:
        here = loop_ranges(stmt, ranges)
        fixed = {stmt.var: Linear(stmt.begin)}
        while stmt.mark in _GONE and len(body) == 1 and isinstance(body[0], For) and _turns_once(body[0]):
            inner = body[0]  # all at once, for all below is rebuilt
            here, body = loop_ranges(inner, here), inner.body
            fixed[inner.var] = Linear(inner.begin)
        body = tuple(map_linears(s, lambda x: x.substitute(fixed, here)) for s in body)
        if stmt.mark in _GONE:
            return list(simplify(body, ranges, facts))
    body = simplify(body, loop_ranges(stmt, ranges), facts)
    if not body:
        return []
    if len(body) == 1 and isinstance(body[0], If):
        return _hoist(stmt.around(body), body[0], ranges, facts)
    return [stmt.around(body)]


def _turns_once(loop: For) -> bool:
    return loop.extent == 1 and loop.mark in _GONE


def _hoist(stmt: For, guard: If, ranges: Ranges, facts: Facts) -> list[Stmt]:
    """A loop whose whole body is guarded: test outside what does not vary, and shorten the loop by what does."""
    outside = [c for c in guard.when if _stays(c, stmt)]
    inside = [c for c in guard.when if c not in outside]
    begin, end = stmt.begin, stmt.begin + stmt.extent
    kept: list[Condition] = []
    for c in inside:
        bound = _bound(c, stmt.var) if stmt.mark not in ("parallel", "vectorize") else None
        if bound is None:
            kept.append(c)
        elif bound[0]:
            begin = max(begin, bound[1])
        else:
            end = min(end, bound[1] + 1)
    if begin >= end:
        return []
    body: tuple[Stmt, ...] = (If(tuple(kept), guard.body),) if kept else guard.body
    new: Stmt = replace(stmt, begin=begin, extent=end - begin, body=body)
    if outside:
        new = If(tuple(outside), (new,))
    changed = outside or begin != stmt.begin or end != stmt.begin + stmt.extent
    return _simplify(new, ranges, facts) if changed else [new]


def _stays(c: Condition, loop: For) -> bool:
    """Whether a condition is the same in every turn of a loop."""
    if isinstance(c, Linear):
        return loop.var not in set(c.variables())
    return loop.var not in variables(c) and _lasts(c, loop.body)


def _lasts(c: Condition, body: tuple[Stmt, ...]) -> bool:
    """Whether the statements write nothing that a condition reads."""
    read = {e.buffer for e in walk(c) if isinstance(e, Load)} if isinstance(c, Expr) else set()
    return not read or read.isdisjoint(b for s in statements(body) if isinstance(s, Store) for b, _ in s.targets)


def _bound(c: Condition, var: str) -> tuple[bool, int] | None:
    """(is lower, bound) when the condition bounds `var` by a constant, else None."""
    if not isinstance(c, Linear) or set(c.terms) != {var}:
        return None
    k = c.terms[var]
    return (True, -(c.const // k)) if k > 0 else (False, c.const // -k)


def _guard(stmt: If, ranges: Ranges, facts: Facts) -> list[Stmt]:
    kept: list[Condition] = []
    for c in stmt.when:
        known = decide(c, ranges, (*facts, *kept))
        if known is False:
            return []
        if known is None:
            kept.append(c)
    body = simplify(stmt.body, ranges, (*facts, *(c for c in kept if _lasts(c, stmt.body))))
    if not body:
        return []
    return [If(tuple(kept), body)] if kept else list(body)


def _value(value: Expr, ranges: Ranges, facts: Facts) -> Expr:
    """The value with loads and selections decided as far as the loops around tell."""

    def leaf(e: Expr) -> Expr:
        if isinstance(e, Load):
            return _load(e, ranges, facts) if e.when else e
        if isinstance(e, Select):
            forms = as_conditions(e.condition)
            known = None if forms is None else [decide(c, ranges, facts) for c in forms]
            if known is not None and False in known:
                return below(e.b)
            if known is not None and None not in known:
                return below(e.a)
            return Select(below(e.condition), below(e.a), below(e.b), e.dtype)
        return e

    def below(e: Expr) -> Expr:
        return map_expr(e, leaf, (Load, Select))

    return below(value)


def _load(e: Load, ranges: Ranges, facts: Facts) -> Expr:
    kept: list[Condition] = []
    for c in e.when:
        known = decide(c, ranges, facts)
        if known is False and e.otherwise is not None:
            return e.otherwise
        if known is None:
            kept.append(c)
    return Load(e.buffer, e.indices, tuple(kept), e.otherwise if kept else None)
