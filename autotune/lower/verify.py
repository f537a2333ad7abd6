"""The verifier: what must hold of loop IR after every pass."""

from __future__ import annotations

from autotune.errors import LoweringError
from autotune.lower.bounds import least, least_by_cases
from autotune.lower.ir import (
    REGISTER,
    Barrier,
    Buffer,
    Condition,
    For,
    If,
    Index,
    Load,
    LoopProgram,
    Once,
    Prefetch,
    Stmt,
    Store,
    body_of,
    expressions,
    loop_ranges,
)
from autotune.tensor.expr import Expr, Read
from autotune.tensor.linear import Linear, Ranges


def verify(program: LoopProgram, after: str) -> LoopProgram:
    """The program itself, if it is well formed.

    Checks: loop variables are unique and bound where used; every access has one index per dimension, inside the buffer
    under the guards around it; no logical read is left; registers are not shared across threads; all threads meet at
    every barrier, equally often, and no loop is shared among threads that already is inside one.

    Raises:
        LoweringError: naming the pass after which the IR was wrong.
    """
    known = {b.name: b for b in program.buffers}
    if len(known) != len(program.buffers):
        raise LoweringError(f"after {after}: two buffers of {program.name} have the same name")
    _verify(program.body, {}, (), known, f"after {after}: {program.name}")
    _verify_threads(program.body, f"after {after}: {program.name}")
    return program


def _verify_threads(body: tuple[Stmt, ...], where: str, alone: str = "") -> None:
    """`alone` says why statements may not run on all threads together."""
    for stmt in body:
        inside = alone
        if isinstance(stmt, Barrier) and alone:
            raise LoweringError(f"{where}: not all threads come to a barrier inside {alone}")
        if isinstance(stmt, For) and stmt.mark == "parallel":
            if alone:
                raise LoweringError(f"{where}: {stmt.var} is shared among threads inside {alone}")
            inside = f"the parallel loop {stmt.var}"
        elif isinstance(stmt, Once):
            inside = "what runs on one thread"
        elif isinstance(stmt, For) and stmt.mark:
            inside = alone or f"the loop {stmt.var}, marked {stmt.mark}"
        _verify_threads(body_of(stmt), where, inside)


def _verify(
    body: tuple[Stmt, ...], ranges: Ranges, facts: tuple[Linear, ...], known: dict[str, Buffer], where: str
) -> None:
    for stmt in body:
        if isinstance(stmt, For) and stmt.extent <= 0:
            continue  # of a tensor without elements
        inner, inner_facts = ranges, facts
        if isinstance(stmt, For):
            if stmt.var in ranges:
                raise LoweringError(f"{where}: loop variable {stmt.var} is bound twice")
            inner = loop_ranges(stmt, ranges)
        elif isinstance(stmt, If):
            inner_facts = (*facts, *(c for c in stmt.when if isinstance(c, Linear)))
            _bound(stmt.when, ranges, where)
        elif isinstance(stmt, Store):
            for buffer, indices in stmt.targets:
                _access(buffer, indices, ranges, facts, known, where)
        elif isinstance(stmt, Prefetch):
            _bound(stmt.indices, ranges, where)
        for e in expressions(stmt):
            if isinstance(e, Read):
                raise LoweringError(f"{where}: `{e}` was not lowered")
            if isinstance(e, Load):
                _bound(e.when, ranges, where)
                guards = (*facts, *(c for c in e.when if isinstance(c, Linear)))
                opaque = any(isinstance(c, Expr) for c in e.when)
                _access(e.buffer, e.indices, ranges, guards, known, where, opaque)
            elif isinstance(e, Index):
                _bound((e.value,), ranges, where)
        _verify(body_of(stmt), inner, inner_facts, known, where)


def _bound(values: tuple[Condition, ...], ranges: Ranges, where: str) -> None:
    for value in values:
        if isinstance(value, Linear):
            for name in value.variables():
                if name not in ranges:
                    raise LoweringError(f"{where}: `{value}` uses {name} outside its loop")


def _access(
    buffer: Buffer, indices: tuple[Linear, ...], ranges: Ranges, facts: tuple[Linear, ...], known: dict[str, Buffer],
    where: str, guarded: bool = False,
) -> None:  # fmt: skip
    if known.get(buffer.name) != buffer:
        raise LoweringError(f"{where}: buffer {buffer.name} is not declared")
    if len(indices) != len(buffer.shape):
        raise LoweringError(f"{where}: {buffer.name} has {len(buffer.shape)} dimensions, accessed with {len(indices)}")
    _bound(indices, ranges, where)
    for index, extent in zip(indices, buffer.shape):
        if guarded:
            continue
        for room in (index, (index * -1) + (extent - 1)):
            if room.range(ranges)[0] >= 0 or least(room, ranges, facts) >= 0:
                continue
            if least_by_cases(room, ranges, facts) < 0:
                scope = " (registers)" if buffer.scope == REGISTER else ""
                raise LoweringError(f"{where}: {buffer.name}[{index}]{scope} may leave 0..{extent - 1}")
