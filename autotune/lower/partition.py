"""Loop partitioning: run the interior without guards, and edges and tail apart (Halide's loop partitioning)."""

from __future__ import annotations

import itertools
from dataclasses import replace

from autotune.lower.ir import (
    Condition,
    For,
    If,
    Load,
    Stmt,
    as_conditions,
    body_of,
    expressions,
    loop_ranges,
    with_body,
)
from autotune.tensor.expr import Select
from autotune.tensor.linear import Linear, Ranges

MAX_PIECES = 8
"""Loops that one becomes, at most: each is code of its own."""


def partition(body: tuple[Stmt, ...], loops: frozenset[str], ranges: Ranges | None = None) -> tuple[Stmt, ...]:
    """Cut each loop over a variable of `loops` where guards inside it stop, or start, to depend on it."""
    out: list[Stmt] = []
    for stmt in body:
        pieces: list[Stmt] = [stmt]
        if isinstance(stmt, For) and stmt.var in loops:
            pieces = _cut(stmt, loop_ranges(stmt, ranges or {}))
        for piece in pieces:
            # From the outside in: in the last round of an outer loop, more is known about the guards of inner ones.
            inner = loop_ranges(piece, ranges or {}) if isinstance(piece, For) else (ranges or {})
            out.append(with_body(piece, partition(body_of(piece), loops, inner)))
    return tuple(out)


def _cut(loop: For, ranges: Ranges) -> list[Stmt]:
    """The loop in pieces, in each of which as many conditions as possible hold always, or never."""
    first, last = loop.begin, loop.begin + loop.extent
    lo, hi = first, last
    conditions = _conditions(loop.body, ranges)
    edges = {first, last}
    for condition, where in conditions:
        steady = _steady(condition, loop.var, where, first, last)
        if steady is not None:
            lo, hi = max(lo, steady[0]), min(hi, steady[1])
            edges.update(steady)
    if lo >= hi and len(edges) <= MAX_PIECES + 1:
        # Nowhere do all conditions hold: each piece has some of its own (the parts of a concatenation).
        cuts = sorted(edges)
        return [replace(loop, begin=a, extent=b - a) for a, b in itertools.pairwise(cuts)]
    if (lo, hi) == (first, last) or lo >= hi:
        lo = hi = first
    # Beyond some round a guard never holds: apart from these, the rounds of the tail are few, often one.
    dead = min((d for c, where in conditions if hi < (d := _dead(c, loop.var, where, last)) < last), default=last)
    pieces = [(first, lo), (lo, hi), (hi, dead), (dead, last)]
    return [replace(loop, begin=a, extent=b - a) for a, b in pieces if b > a]


def _dead(c: Condition, var: str, ranges: Ranges, last: int) -> int:
    """The first round of `var` from which on the condition fails whatever the other variables are, at most `last`."""
    k, rest = _in(c, var)
    if k >= 0:
        return last
    return min(last, rest.range(ranges)[1] // -k + 1)


def _steady(c: Condition, var: str, ranges: Ranges, first: int, last: int) -> tuple[int, int] | None:
    """The sub-range of `var` in which the condition holds whatever the other variables are; None if there is none."""
    k, rest = _in(c, var)
    if k == 0:
        return None
    least = rest.range(ranges)[0]
    lo, hi = (max(first, -(least // k)), last) if k > 0 else (first, min(last, least // -k + 1))
    return (lo, hi) if lo < hi else None


def _in(c: Condition, var: str) -> tuple[int, Linear]:
    """The condition as k * var + rest >= 0; k = 0 when it has no such form."""
    if not isinstance(c, Linear) or var not in c.terms:
        return 0, Linear()
    rest = Linear(c.const, {t: x for t, x in c.terms.items() if t != var})
    return (0, Linear()) if var in set(rest.variables()) else (c.terms[var], rest)


def _conditions(body: tuple[Stmt, ...], ranges: Ranges) -> list[tuple[Condition, Ranges]]:
    out: list[tuple[Condition, Ranges]] = []
    for stmt in body:
        inner = loop_ranges(stmt, ranges) if isinstance(stmt, For) else ranges
        if isinstance(stmt, If):
            out += [(c, ranges) for c in stmt.when]
        for e in expressions(stmt):
            if isinstance(e, Load):
                out += [(c, ranges) for c in e.when]
            elif isinstance(e, Select):
                out += [(c, ranges) for c in as_conditions(e.condition) or ()]
        out += _conditions(body_of(stmt), inner)
    return out
