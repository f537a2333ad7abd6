"""Sums that start from what is added to them: a bias is where a sum in registers begins, not an operation after it.

Setting registers to it costs what setting them to zero does, while an addition for each element of the result is a
tenth of the work of a sum of few terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autotune.lower.ir import (
    Buffer,
    For,
    Load,
    LoopProgram,
    Stmt,
    Store,
    body_of,
    expressions,
    map_linears,
    statements,
    variables,
    with_body,
)
from autotune.lower.partial_sums import is_parked, zeroing
from autotune.tensor.expr import Binary, Expr, Var, rewrite, walk
from autotune.tensor.linear import Linear


def started(program: LoopProgram) -> LoopProgram:
    """Set registers to what is added to their sum, where nothing else is done with the sum before.

    Only constants of the model that several sums share: a sum would have to wait for anything else, and to set each
    register to a value of its own is no less work than adding it.

    rewrite:
        R[i] = 0                            R[i] = B[i]
        for k: R[i] += f(i, k)      -->     for k: R[i] += f(i, k)
        O[i] = g(R[i] + B[i])               O[i] = g(R[i])
    """
    constants = frozenset(o.name for o in program.operands if o.constant)
    return replace(program, body=_visit(program.body, constants)) if constants else program


def _visit(body: tuple[Stmt, ...], constants: frozenset[str]) -> tuple[Stmt, ...]:
    out = list(body)
    for n, stmt in enumerate(out):
        register = zeroing(stmt)
        if register is None:
            out[n] = with_body(stmt, _visit(body_of(stmt), constants))
        elif not (n and _parks(out[n - 1])):
            user = _user(out, n, register)
            if user is not None:
                out[n], out[user] = _beginning(stmt, out[user], register, constants) or (stmt, out[user])
    return tuple(out)


def _user(body: list[Stmt], n: int, register: Buffer) -> int | None:
    """The place of the only statement that reads the sum which registers set to zero at place `n` end up with."""
    found = None
    for m in range(n + 1, len(body)):
        again = zeroing(body[m]) == register
        if again and not _parks(body[m - 1]):
            break
        if again or _only_adds(body[m], register):
            continue
        if found is not None:
            return None
        found = m
    return found


def _parks(stmt: Stmt) -> bool:
    """Whether a nest does no more than to park what registers hold."""
    store, _ = _innermost(stmt)
    return store is not None and is_parked(store.targets[0][0])


def _only_adds(stmt: Stmt, register: Buffer) -> bool:
    """Whether a statement adds to the registers, parks what they hold and adds it again, and no more with them."""
    inside = list(statements((stmt,)))
    stores = [s for s in inside if isinstance(s, Store)]
    parts = any(is_parked(target) for s in stores for target, _ in s.targets)
    for s in inside:
        targets = [target for target, _ in s.targets] if isinstance(s, Store) else []
        adds = isinstance(s, Store) and (s.fold == "sum" or (parts and zeroing(s) == register))
        if register in targets and not adds:
            return False
        parked = bool(targets) and all(map(is_parked, targets))
        if not parked and any(_holds(e, register) for e in expressions(s)):
            return False
    return True


def _beginning(zero: Stmt, user: Stmt, register: Buffer, constants: frozenset[str]) -> tuple[Stmt, Stmt] | None:
    """The registers set to what `user` adds to them, and `user` without that; None where it is not of such a form."""
    (begun, loops), (used, others) = _innermost(zero), _innermost(user)
    if begun is None or used is None or used.fold is not None:
        return None
    total = _sum_with_bias(used, register)
    if total is None:
        return None
    load, bias = (total.a, total.b) if _holds(total.a, register) else (total.b, total.a)
    if not isinstance(load, Load) or not isinstance(bias, Load) or bias.when or bias.buffer.name not in constants:
        return None
    names = _renamed(load.indices, begun.targets[0][1], others, loops)
    moving = variables(bias) & others.keys()
    if names is None or any(x not in names or not _same_turns(others[x], loops[names[x]]) for x in moving):
        return None
    if all(loop.extent == 1 or x in moving for x, loop in others.items()):
        return None
    place = {x: Linear.var(y) for x, y in names.items()}
    start = map_linears(Store(begun.targets, (bias,)), lambda form: form.substitute(place, {}))
    rest = replace(used, values=tuple(_replaced(value, total, load) for value in used.values))
    return _around(zero, start), _around(user, rest)


def _innermost(stmt: Stmt) -> tuple[Store | None, dict[str, For]]:
    """The only statement inside of loops, and these by their variables; None where there is more than loops."""
    loops: dict[str, For] = {}
    while isinstance(stmt, For) and len(stmt.body) == 1:
        loops[stmt.var] = stmt
        (stmt,) = stmt.body
    return stmt if isinstance(stmt, Store) else None, loops


def _around(nest: Stmt, inner: Stmt) -> Stmt:
    return nest.around((_around(nest.body[0], inner),)) if isinstance(nest, For) else inner


def _holds(e: Expr, register: Buffer) -> bool:
    """Whether it is an element of the registers."""
    return isinstance(e, Load) and e.buffer == register


def _sum_with_bias(used: Store, register: Buffer) -> Binary | None:
    """The addition that is all that is done with the registers, however often its result is used."""
    additions = [
        e
        for value in used.values
        for e in walk(value)
        if isinstance(e, Binary) and e.op == "add" and _holds(e.a, register) != _holds(e.b, register)
    ]
    reads = sum(_holds(e, register) for e in expressions(used))
    return additions[0] if len(additions) == reads and len(set(additions)) == 1 else None


def _replaced(value: Expr, total: Binary, load: Load) -> Expr:
    """A value with the registers for their sum with the bias."""
    alone = Var(f"{load.buffer.name}.alone", load.dtype)  # so that it is not taken for what else it is added to
    marked = rewrite(value, lambda e: alone if e == total else None)
    return rewrite(marked, lambda e: load if e == alone else None)


def _same_turns(a: For, b: For) -> bool:
    return (a.begin, a.extent) == (b.begin, b.extent)


def _renamed(
    its: tuple[Linear, ...], mine: tuple[Linear, ...], others: Mapping[str, For], loops: Mapping[str, For]
) -> dict[str, str] | None:
    """The variables of one nest by those of the other at the same element, if that goes through at least as many."""
    names: dict[str, str] = {}
    for a, b in zip(its, mine):
        x, y = next(a.variables(), ""), next(b.variables(), "")
        if a.is_const and (a == b or y in loops):  # the others are never looked at
            continue
        if x not in others or y not in loops or a != Linear.var(x) or b != Linear.var(y):
            return None
        names[x] = y
    return names
