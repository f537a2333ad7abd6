"""A table of 256 bytes is four registers: vectors of bytes are looked up by two permutations (AVX-512 VBMI)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.codegen.value import Value
from autotune.lower.ir import OPERAND, Buffer
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr
from autotune.tensor.linear import Linear

if TYPE_CHECKING:
    from autotune.codegen.memory import Memory

FEATURE = "avx512vbmi"
ENTRIES = 256
LANES = 64
_PERMUTE = "@llvm.x86.avx512.vpermi2var.qi.512"


def looked_up(m: Memory, buffer: Buffer, indices: tuple[Linear, ...]) -> Value | None:
    """The elements at places that are bytes, one per lane; None where it is another table, or other places."""
    if not m.permutes_bytes or not m.lanes or m.lanes > LANES or len(indices) != 1:
        return None
    if buffer.dtype.bytes != 1 or buffer.elements != ENTRIES or buffer.scope != OPERAND:
        return None
    place = _byte(indices[0])
    found = None if place is None else m.evaluate(place)
    if found is None or found.lanes != m.lanes:
        return None
    kind, lanes = f"<{LANES} x i8>", f"<{m.lanes} x i8>"
    m.w.declare(f"{kind} {_PERMUTE}({kind}, {kind}, {kind})")
    wide = ", ".join(f"i32 {n}" if n < m.lanes else "i32 poison" for n in range(LANES))
    at = m.w.value(f"shufflevector {lanes} {found.text}, {lanes} poison, <{LANES} x i32> <{wide}>")
    parts = []
    for n in range(ENTRIES // LANES):
        pointer = m.w.value(f"getelementptr inbounds i8, ptr {m.x.bases[buffer.name]}, i64 {n * LANES}")
        parts.append(m.w.value(f"load {kind}, ptr {pointer}, align 1"))
    low, high = (
        m.w.value(f"call {kind} {_PERMUTE}({kind} {parts[n]}, {kind} {at}, {kind} {parts[n + 1]})") for n in (0, 2)
    )
    above = m.w.value(f"icmp slt {kind} {at}, zeroinitializer")
    both = m.w.value(f"select <{LANES} x i1> {above}, {kind} {high}, {kind} {low}")
    first = ", ".join(f"i32 {n}" for n in range(m.lanes))
    text = m.w.value(f"shufflevector {kind} {both}, {kind} poison, <{m.lanes} x i32> <{first}>")
    return m.a.from_storage(text, buffer.dtype, m.lanes)


def _byte(index: Linear) -> Expr | None:
    """The unsigned byte that is an index, whatever it was widened to and bounded by; None for another index."""
    if index.const or len(index.terms) != 1:
        return None
    ((term, factor),) = index.terms.items()
    if factor != 1 or not isinstance(term, Expr):
        return None
    while isinstance(term, (Binary, Cast)):
        bounds = (("max", Const(0, term.dtype)), ("min", Const(ENTRIES - 1, term.dtype)))
        if isinstance(term, Binary) and (term.op, term.b) not in bounds:
            return None
        term = term.a
    return term if term.dtype is DType.u8 else None
