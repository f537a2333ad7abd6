"""Long sums in registers, in parts: what so many terms add up to is parked in memory and added to the next part's sum.

Rounding errors of a sum are relative to what has been summed up so far, so they grow with the square root of the
number of terms; those of partial sums do with that of their own (Blanchard, Higham and Mary, 2020). Where what is made
of a sum has its errors amplified, parts are shorter (`Stage.amplified`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.lower.ir import (
    LOCAL,
    REGISTER,
    Buffer,
    Condition,
    For,
    If,
    Load,
    LoopProgram,
    Stmt,
    Store,
    body_of,
    expressions,
    loop_ranges,
    map_linears,
    statements,
    with_body,
)
from autotune.schedule.state import UNROLL, VECTORIZE
from autotune.tensor.linear import Linear, Ranges
from autotune.tensor.rounding import terms_of_a_part

_PARKED = ".parked"


def is_parked(buffer: Buffer) -> bool:
    """Whether it holds nothing but what registers have summed up so far."""
    return buffer.name.endswith(_PARKED)


def most_terms(part: int) -> int:
    """That a register sums up before its loops are cut."""
    return part * 3 // 2


@dataclass(frozen=True, slots=True)
class _Sum:
    """A buffer of registers that are set to zero, loops that do so, and how many terms one should sum up."""

    buffer: Buffer
    zero: Stmt
    part: int


def in_parts(program: LoopProgram, amplified: Mapping[str, float]) -> LoopProgram:
    """Cut loops that sum up many terms in registers, and add their partial sums.

    rewrite:
        R[i] = 0                            R[i] = 0
        for k in n: R[i] += f(i, k)         for k.o in n / m:
        -->                                     if k.o > 0: P[i] = R[i];  R[i] = 0
                                                for k.i in m: R[i] += f(i, k.o * m + k.i)
                                                if k.o > 0: R[i] += P[i]

    Args:
        amplified: of the sums in a buffer, as `Stage.amplified`.
    """
    cutter = _Cutter(amplified)
    body = cutter.visit(program.body, {}, {})
    return replace(program, body=body, buffers=(*program.buffers, *cutter.parked.values()))


class _Cutter:
    def __init__(self, amplified: Mapping[str, float]) -> None:
        self.amplified = amplified
        self.parked: dict[str, Buffer] = {}

    def visit(self, body: tuple[Stmt, ...], zeroed: dict[str, _Sum], ranges: Ranges) -> tuple[Stmt, ...]:
        """Statements with the sums below them cut; `zeroed`: the registers that hold a sum here."""
        known, empty, out = dict(zeroed), set[str](), list[Stmt]()
        for stmt in body:
            register = zeroing(stmt)
            if register is not None and register.dtype.is_float:
                name = register.name
                empty.add(name)
                known[name] = _Sum(register, stmt, terms_of_a_part(self.amplified.get(name, 1.0)))
            total = self._sum_of(stmt, known)
            if isinstance(stmt, For) and total is not None:
                out += self._cut(stmt, total, total.buffer.name in empty, ranges)
                empty.discard(total.buffer.name)
                continue
            if empty:
                empty -= _folded(stmt)
            inner = loop_ranges(stmt, ranges) if isinstance(stmt, For) else ranges
            out.append(with_body(stmt, self.visit(body_of(stmt), known, inner)))
        return tuple(out)

    def _sum_of(self, stmt: Stmt, known: dict[str, _Sum]) -> _Sum | None:
        """The only registers that a loop sums up in, if it may be cut and each round is short enough."""
        if not known or not isinstance(stmt, For) or stmt.mark or stmt.turn or stmt.extent < 2:
            return None
        sums = [known[name] for name in _folded(stmt) & set(known)]
        if len(sums) != 1 or _instructed(stmt) or not _only_sums(stmt, sums[0].buffer):
            return None
        terms = _terms(stmt, sums[0].buffer)
        return sums[0] if terms > most_terms(sums[0].part) >= terms // stmt.extent else None

    def _cut(self, loop: For, total: _Sum, empty: bool, ranges: Ranges) -> list[Stmt]:
        """The loop in parts of equal length, and what is left.

        Registers that are `empty` need no parking at first. Asked in each part, that costs next to nothing where
        parts are long, and the longest code of a kernel stands there once; of short ones, the first stands before the
        loop (docs/adr/0032).
        """
        rounds = _length(loop.extent, _terms(loop, total.buffer) // loop.extent, total.part)
        parts, rest = divmod(loop.extent, rounds)
        first = int(empty and (parts == 1 or total.part < terms_of_a_part()))
        cut: list[Stmt] = [replace(loop, extent=rounds)] if first else []
        if parts > first:
            outer, inner = f"{loop.var}.part", f"{loop.var}.term"
            place = Linear(loop.begin, {outer: rounds, inner: 1})
            inside = {**ranges, outer: (first, parts - 1), inner: (0, rounds - 1)}
            body = tuple(map_linears(s, lambda form: form.substitute({loop.var: place}, inside)) for s in loop.body)
            later = (Linear(-1, {outer: 1}),) if empty and not first else ()
            part = self._part(For(inner, 0, rounds, "", body), total, later)
            cut.append(For(outer, first, parts - first, "", part))
        if rest:
            cut += self._part(replace(loop, begin=loop.begin + parts * rounds, extent=rest), total)
        return cut

    def _part(self, loop: For, total: _Sum, later: tuple[Condition, ...] = ()) -> tuple[Stmt, ...]:
        """A part, which is added to others where there are such: where the conditions hold."""
        name = total.buffer.name + _PARKED
        parked = self.parked.setdefault(name, replace(total.buffer, name=name, scope=LOCAL))
        before = (_moving(total.zero, total.buffer, parked, None), total.zero)
        after = (_moving(total.zero, parked, total.buffer, "sum"),)
        if later:
            return If(later, before), loop, If(later, after)
        return (*before, loop, *after)


def _length(extent: int, terms: int, part: int) -> int:
    """Rounds of a part, each of so many terms: parts are equally long where that makes them about as long as asked."""
    most, least = max(1, most_terms(part) // terms), max(1, part // 2 // terms)
    even = [n for n in range(least, most + 1) if extent % n == 0]
    return min(even, key=lambda n: abs(n * terms - part), default=max(1, part // terms))


def zeroing(stmt: Stmt) -> Buffer | None:
    """Registers that a nest sets to zero, and that it does nothing else."""
    inner = stmt
    while isinstance(inner, For) and len(inner.body) == 1:
        (inner,) = inner.body
    if not isinstance(inner, Store) or inner.fold is not None or len(inner.targets) != 1:
        return None
    ((buffer, _),), (value,) = inner.targets, inner.values
    zero = getattr(value, "value", None) == 0
    return buffer if zero and buffer.scope == REGISTER else None


def _folded(stmt: Stmt) -> set[str]:
    """Names of the buffers that sums below a statement go to."""
    stores = (s for s in statements((stmt,)) if isinstance(s, Store))
    return {s.targets[0][0].name for s in stores if s.fold == "sum"}


def _instructed(stmt: Stmt) -> bool:
    """Whether instructions for sums of products of narrow numbers are below: these err more than their sum."""
    return any(isinstance(s, For) and s.mark not in ("", UNROLL, VECTORIZE) for s in statements((stmt,)))


def _only_sums(loop: For, buffer: Buffer) -> bool:
    """Whether all that a loop does with a buffer is to add to the elements that it always adds to."""
    for stmt in statements((loop,)):
        if any(isinstance(e, Load) and e.buffer.name == buffer.name for e in expressions(stmt)):
            return False
        if isinstance(stmt, Store):
            for target, indices in stmt.targets:
                moves = any(loop.var in set(index.variables()) for index in indices)
                if target.name == buffer.name and (stmt.fold != "sum" or moves):
                    return False
    return True


def _terms(stmt: Stmt, buffer: Buffer) -> int:
    """How many terms an element of the buffer gets from a statement, at most."""
    if isinstance(stmt, Store):
        return int(any(target.name == buffer.name for target, _ in stmt.targets))
    below = sum(_terms(s, buffer) for s in body_of(stmt))
    return below * stmt.extent if isinstance(stmt, For) and not _spatial(stmt, buffer) else below


def _spatial(loop: For, buffer: Buffer) -> bool:
    """Whether each round of a loop adds to elements of its own."""
    stores = (s for s in statements(loop.body) if isinstance(s, Store))
    places = [i for s in stores for target, indices in s.targets if target.name == buffer.name for i in indices]
    return any(loop.var in set(index.variables()) for index in places)


def _moving(zero: Stmt, source: Buffer, target: Buffer, fold: str | None) -> Stmt:
    """The nest that sets registers to zero, moving them between memory and registers instead."""
    if isinstance(zero, Store):
        ((_, indices),) = zero.targets
        return Store(((target, indices),), (Load(source, indices),), fold)
    return with_body(zero, tuple(_moving(s, source, target, fold) for s in body_of(zero)))
