"""Guards of vectorized loops: where no lane is on, the statement is skipped.

A masked statement still reads what all its lanes share (broadcasts). That memory is sure to exist only if some lane is
on, so the guard "one lane satisfies this" is added where it could fail. A single split needs none.
"""

from __future__ import annotations

from dataclasses import replace

from autotune.lower.bounds import least
from autotune.lower.ir import For, If, Stmt, body_of, loop_ranges, with_body
from autotune.tensor.linear import Linear, Ranges


def some_lane(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The nest with such guards added."""
    return _visit(body, {}, (), None)


def _visit(body: tuple[Stmt, ...], ranges: Ranges, facts: tuple[Linear, ...], vector: For | None) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        inner, known, lanes = ranges, facts, vector
        new = stmt
        if isinstance(stmt, For):
            inner = loop_ranges(stmt, ranges)
            lanes = stmt if stmt.mark == "vectorize" else vector
        elif isinstance(stmt, If):
            added = [] if vector is None else _needed(stmt, ranges, facts, vector)
            new = replace(stmt, when=(*added, *stmt.when))
            known = (*facts, *(c for c in new.when if isinstance(c, Linear)))
        out.append(with_body(new, _visit(body_of(new), inner, known, lanes)))
    return tuple(out)


def _needed(stmt: If, ranges: Ranges, facts: tuple[Linear, ...], vector: For) -> list[Linear]:
    uniform = [c for c in stmt.when if isinstance(c, Linear) and vector.var not in set(c.variables())]
    out: list[Linear] = []
    for c in stmt.when:
        if isinstance(c, Linear) and vector.var in c.terms:
            lane = vector.begin + (vector.extent - 1 if c.terms[vector.var] > 0 else 0)
            best = c.substitute({vector.var: Linear(lane)}, ranges)
            if vector.var not in set(best.variables()) and least(best, ranges, (*facts, *uniform, *out)) < 0:
                out.append(best)
    return out
