"""Loop partitioning: run the interior without guards, and edges and tail apart (Halide's loop partitioning)."""

from __future__ import annotations

from dataclasses import replace

from autotune.lower.ir import Condition, For, If, Load, Stmt, body_of, expressions, loop_ranges, with_body
from autotune.tensor.linear import Linear, Ranges


def partition(body: tuple[Stmt, ...], loops: frozenset[str], ranges: Ranges | None = None) -> tuple[Stmt, ...]:
    """Cut each loop over a variable of `loops` where guards inside it stop, or start, to depend on it."""
    out: list[Stmt] = []
    for stmt in body:
        inner = loop_ranges(stmt, ranges or {}) if isinstance(stmt, For) else (ranges or {})
        new = with_body(stmt, partition(body_of(stmt), loops, inner))
        if isinstance(new, For) and new.var in loops:
            out += _cut(new, inner)
        else:
            out.append(new)
    return tuple(out)


def _cut(loop: For, ranges: Ranges) -> list[Stmt]:
    first, last = loop.begin, loop.begin + loop.extent
    lo, hi = first, last
    for condition, where in _conditions(loop.body, ranges):
        steady = _steady(condition, loop.var, where, first, last)
        if steady is not None:
            lo, hi = max(lo, steady[0]), min(hi, steady[1])
    if (lo, hi) == (first, last) or lo >= hi:
        return [loop]
    pieces = [(first, lo), (lo, hi), (hi, last)]
    return [replace(loop, begin=a, extent=b - a) for a, b in pieces if b > a]


def _steady(c: Condition, var: str, ranges: Ranges, first: int, last: int) -> tuple[int, int] | None:
    """The sub-range of `var` in which the condition holds whatever the other variables are; None if there is none."""
    if not isinstance(c, Linear) or var not in c.terms:
        return None
    k = c.terms[var]
    rest = Linear(c.const, {t: x for t, x in c.terms.items() if t != var})
    if var in set(rest.variables()):
        return None
    least = rest.range(ranges)[0]
    lo, hi = (max(first, -(least // k)), last) if k > 0 else (first, min(last, least // -k + 1))
    return (lo, hi) if lo < hi else None


def _conditions(body: tuple[Stmt, ...], ranges: Ranges) -> list[tuple[Condition, Ranges]]:
    out: list[tuple[Condition, Ranges]] = []
    for stmt in body:
        inner = loop_ranges(stmt, ranges) if isinstance(stmt, For) else ranges
        if isinstance(stmt, If):
            out += [(c, ranges) for c in stmt.when]
        for e in expressions(stmt):
            if isinstance(e, Load):
                out += [(c, ranges) for c in e.when]
        out += _conditions(body_of(stmt), inner)
    return out
