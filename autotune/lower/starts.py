"""Sums that start from what is added to them: a bias is where a sum in registers begins, not an operation after it.

Setting registers to it costs what setting them to zero does, while an addition for each element of the result is a
tenth of the work of a sum of few terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from autotune.tensor.expr import Binary, Expr, Var, children, rewrite, walk
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


def _reads(stmt: Stmt, register: Buffer) -> bool:
    return any(isinstance(e, Load) and e.buffer == register for s in statements((stmt,)) for e in expressions(s))


def _only_adds(stmt: Stmt, register: Buffer) -> bool:
    """Whether a statement adds to the registers, parks what they hold and adds it again, and no more with them."""
    stores = [s for s in statements((stmt,)) if isinstance(s, Store)]
    parts = any(is_parked(target) for s in stores for target, _ in s.targets)
    for s in stores:
        adds = s.fold == "sum" or (parts and zeroing(s) == register)
        if not adds and any(target == register for target, _ in s.targets):
            return False
        if _reads(s, register) and not all(is_parked(target) for target, _ in s.targets):
            return False
    return True


def _beginning(zero: Stmt, user: Stmt, register: Buffer, constants: frozenset[str]) -> tuple[Stmt, Stmt] | None:
    """The registers set to what `user` adds to them, and `user` without that; None where it is not of such a form."""
    (begun, loops), (used, others) = _innermost(zero), _innermost(user)
    if begun is None or used is None or used.fold is not None:
        return None
    added = _added(used.values, register, constants)
    if added is None:
        return None
    mine, its = begun.targets[0][1], next(iter(_loads(used.values, register))).indices
    names = _renamed(its, mine, others, loops)
    moving = variables(added) & others.keys()
    if names is None or any(x not in names or _turns(others[x]) != _turns(loops[str(names[x])]) for x in moving):
        return None
    if all(loop.extent == 1 or x in moving for x, loop in others.items()):
        return None
    start = map_linears(Store(begun.targets, (added,)), lambda form: form.substitute(names, {}))
    rest = replace(used, values=tuple(_without(v, register, added) for v in used.values))
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


def _loads(values: Iterable[Expr], register: Buffer) -> list[Load]:
    return [e for v in values for e in walk(v) if isinstance(e, Load) and e.buffer == register]


def _added(values: tuple[Expr, ...], register: Buffer, constants: frozenset[str]) -> Expr | None:
    """What is added to each use of the registers, if that is one constant always."""
    sums = {e for v in values for e in walk(v) if _other(e, register) is not None}
    uses = {e for v in values for e in walk(v) if any(_is(c, register) for c in children(e))}
    if len(sums) != 1 or uses != sums:
        return None
    added = _other(next(iter(sums)), register)
    known = isinstance(added, Load) and added.buffer.name in constants and not added.when
    return added if known and added is not None and added.dtype is register.dtype else None


def _is(e: Expr, register: Buffer) -> bool:
    return isinstance(e, Load) and e.buffer == register


def _other(e: Expr, register: Buffer) -> Expr | None:
    """What is added to the registers by an addition."""
    if not isinstance(e, Binary) or e.op != "add" or _is(e.a, register) == _is(e.b, register):
        return None
    return e.b if _is(e.a, register) else e.a


def _without(value: Expr, register: Buffer, added: Expr) -> Expr:
    """A value without that addition."""
    alone = Var(f"{register.name}.alone", register.dtype)  # so that it is not taken for what else it is added to
    load = _loads((value,), register)

    def sum_of(e: Expr) -> Expr | None:
        return alone if _other(e, register) == added else None

    return rewrite(rewrite(value, sum_of), lambda e: load[0] if e == alone else None)


def _turns(loop: For) -> tuple[int, int]:
    return loop.begin, loop.extent


def _renamed(
    its: tuple[Linear, ...], mine: tuple[Linear, ...], others: Mapping[str, For], loops: Mapping[str, For]
) -> dict[str, Linear] | None:
    """The variables of one nest by those of the other at the same element, if that goes through at least as many."""
    names: dict[str, Linear] = {}
    for a, b in zip(its, mine):
        x, y = next(a.variables(), ""), next(b.variables(), "")
        if a.is_const and (a == b or y in loops):  # the others are never looked at
            continue
        if x not in others or y not in loops or a != Linear.var(x) or b != Linear.var(y):
            return None
        names[x] = b
    return names
