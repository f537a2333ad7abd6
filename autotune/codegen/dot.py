"""Dot-product instructions: one call for a vectorized loop and the short reduce loop inside it."""

from __future__ import annotations

from autotune.codegen.arithmetic import Arithmetic
from autotune.codegen.index import Offset, PerLane
from autotune.codegen.memory import Memory
from autotune.codegen.value import Value, stored_type
from autotune.errors import CodegenError
from autotune.lower.ir import For, Load, LoopProgram, Store, statements
from autotune.schedule.tensorize import DOT_PRODUCTS, DotProduct
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Expr
from autotune.tensor.linear import Linear

_SYMBOL = {"vpdpbusd": "llvm.x86.avx512.vpdpbusd", "vdpbf16ps": "llvm.x86.avx512bf16.dpbf16ps"}
_ELEMENT = {DType.u8: "i8", DType.i8: "i8", DType.bf16: "bfloat"}


def check_instructions(program: LoopProgram, target: Target) -> None:
    """
    Raises:
        CodegenError: the program uses an instruction that the target lacks.
    """
    for stmt in statements(program.body):
        if isinstance(stmt, For) and stmt.mark in DOT_PRODUCTS:
            needed = DOT_PRODUCTS[stmt.mark].feature
            if not target.has(needed, "avx512vl"):
                raise CodegenError(
                    f"{stmt.var} is tensorized with {stmt.mark}, but {target} lacks {needed}; leave out that step"
                )


def emit_dot(m: Memory, a: Arithmetic, loop: For) -> None:
    """The statement inside `loop`, whose mark names the instruction, for all lanes of the vectorized loop."""
    dot = DOT_PRODUCTS[loop.mark]
    store = loop.body[0]
    fits = len(loop.body) == 1 and isinstance(store, Store) and store.fold == "sum" and m.lanes > 0
    if not fits or loop.extent != dot.extent or loop.begin:
        raise CodegenError(f"{loop.var} is tensorized, but guards or other statements are left inside it; pad or split")
    assert isinstance(store, Store)
    ((buffer, indices),) = store.targets
    product = store.values[0]
    assert isinstance(product, Binary)
    factors = sorted((_factor(product.a), _factor(product.b)), key=lambda f: f.buffer.dtype is not dot.left)
    m.x.bind(loop.var, 0)
    total = m.load(buffer, indices, (), None)
    packed = [_packed(m, a, loop, f, dot) for f in factors]
    count = m.lanes * dot.extent
    lanes, kind = m.lanes, stored_type(dot.total, m.lanes)
    operands = [f"<{count} x {_ELEMENT[t]}>" for t in (dot.left, dot.right)]
    symbol = f"@{_SYMBOL[dot.name]}.{lanes * 32}"
    m.w.declare(f"{kind} {symbol}({kind}, {', '.join(operands)})")
    given = [m.w.value(f"bitcast <{lanes} x i32> {text} to {operand}") for text, operand in zip(packed, operands)]
    arguments = ", ".join(f"{operand} {name}" for operand, name in zip(operands, given))
    text = m.w.value(f"call {kind} {symbol}({kind} {a.operand(total, lanes)}, {arguments})")
    m.store(buffer, indices, Value(text, dot.total, lanes))
    m.x.release(loop.var)


def _factor(e: Expr) -> Load:
    if not isinstance(e, Cast) or not isinstance(e.a, Load):
        raise CodegenError(f"`{e}` is no plain widened element; a dot-product instruction needs one")
    return e.a


def _packed(m: Memory, a: Arithmetic, loop: For, load: Load, dot: DotProduct) -> str:
    """`<lanes x i32>`: in each lane, the 4 bytes that the loop over `dot.extent` elements reads."""
    offset = _contiguous(m, loop, load, dot)
    if any(isinstance(c, Linear) and loop.var in set(c.variables()) for c in load.when):
        raise CodegenError(f"the padding of `{load}` differs within {loop.var}; give {load.buffer.name} a halo")
    guard = m.mask if offset.lane else None
    mask = m.all_of(load.when, guard) if load.when else guard
    if load.otherwise is not None and load.otherwise.value != 0:
        raise CodegenError(f"`{load}` has padding other than zero; a dot-product instruction cannot read it")
    if mask is not None and mask.const is False:
        return "zeroinitializer"
    pointer = m.x.pointer(load.buffer, offset, stored_type(load.buffer.dtype))
    size = load.buffer.dtype.bytes
    broadcast = not offset.lane and (mask is None or not mask.lanes)
    if not offset.lane and not broadcast:
        raise CodegenError(f"the padding of `{load}` differs between lanes that share it; give it a halo")
    lanes = m.lanes if offset.lane else 1
    align = min(m.x.alignment(load.buffer, offset), 64) if offset.lane else size
    kind = f"<{lanes} x i32>"
    if mask is None:
        text = m.w.value(f"load {kind}, ptr {pointer}, align {align}")
    else:
        name = f"@llvm.masked.load.v{lanes}i32.p0"
        m.w.declare(f"{kind} {name}(ptr, <{lanes} x i1>, {kind})")
        bits = a.operand(mask, lanes)
        text = m.w.value(
            f"call {kind} {name}(ptr align {align} {pointer}, <{lanes} x i1> {bits}, {kind} zeroinitializer)"
        )
    if offset.lane:
        return text
    return m.w.value(f"shufflevector {kind} {text}, {kind} poison, <{m.lanes} x i32> zeroinitializer")


def _contiguous(m: Memory, loop: For, load: Load, dot: DotProduct) -> Offset:
    """The place of the first element, when the others follow it and lanes share them or follow one another."""

    def at(n: int) -> Offset:
        m.x.bind(loop.var, n)
        try:
            return m.x.offset(m.x.flat(load.buffer, load.indices))
        except PerLane:
            return Offset(0, (), -1)

    places = [at(n) for n in range(dot.extent)]
    m.x.bind(loop.var, 0)
    first = places[0]
    together = all(p == Offset(first.const + n, first.terms, first.lane) for n, p in enumerate(places))
    if not together or first.lane not in (0, dot.extent):
        raise CodegenError(
            f"{dot.name} needs {dot.extent} neighbours of {load.buffer.name} along {loop.var}, the same or the next "
            f"ones in each lane; give {load.buffer.name} a layout with {loop.var} in innermost blocks of {dot.extent}"
        )
    return first
