"""Dot-product instructions: one call for a vectorized loop and the short reduce loop inside it."""

from __future__ import annotations

from autotune.codegen.arithmetic import Arithmetic
from autotune.codegen.halves import Halves
from autotune.codegen.index import Offset, PerLane
from autotune.codegen.memory import Memory
from autotune.codegen.value import Value, stored_type
from autotune.errors import CodegenError
from autotune.lower.ir import For, Index, Load, LoopProgram, Store, statements, variables
from autotune.schedule.dot_products import DOT_PRODUCTS, DotProduct
from autotune.schedule.state import VECTORIZE
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr
from autotune.tensor.fields import Field, field_of
from autotune.tensor.linear import Linear

PIECE = 16
"""Bytes that an instruction of AVX2 shuffles among each other."""
_SHUFFLE = "llvm.x86.avx2.pshuf.b"
_ELEMENT = {DType.u8: "i8", DType.i8: "i8", DType.bf16: "bfloat", DType.i16: "i16"}


def check_instructions(program: LoopProgram, target: Target) -> None:
    """
    Raises:
        CodegenError: the program uses an instruction that the target lacks.
    """
    for vector in statements(program.body):
        if not isinstance(vector, For) or vector.mark != VECTORIZE:
            continue
        for loop in statements(vector.body):
            dot = DOT_PRODUCTS.get(loop.mark) if isinstance(loop, For) else None
            if dot is not None and not dot.runs(target.features, vector.extent):
                assert isinstance(loop, For)
                needed = ", or ".join(" and ".join(f.features) for f in dot.forms if vector.extent in f.lanes)
                raise CodegenError(
                    f"{loop.var} is tensorized with {dot.name} of {vector.extent} lanes, but {target} lacks {needed}; "
                    "leave out that step"
                )


def emit_dot(m: Memory, a: Arithmetic, halves: Halves, loop: For) -> None:
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
    factors = sorted((_factor(product.a), _factor(product.b)), key=lambda f: _dtype(f) is not dot.left)
    m.x.bind(loop.var, 0)
    if dot.below:
        field = factors[0]
        if m.mask is not None or not isinstance(field, Field):
            raise CodegenError(f"{loop.var} is tensorized with {dot.name}: it needs bits of words, and no guard; pad")
        text = _pairs_added(m, dot, [_packed(m, a, loop, f, dot) for f in factors])
        halves.add(buffer, m.x.offset(m.x.flat(buffer, indices)), text, dot.pair(field.mask + 1))
        m.x.release(loop.var)
        return
    total = m.load(buffer, indices, (), None)
    if dot.widened:
        pairs = _in_pairs(m, a, loop, factors, dot)
        text = a.operand(total, m.lanes)
        for pair in zip(*pairs, strict=True):
            text = _call(m, dot, text, list(pair), f"<{m.lanes * 2} x i16>")
    else:
        packed = [_packed(m, a, loop, f, dot) for f in factors]
        text = a.operand(total, m.lanes)
        text = _call(m, dot, text, packed, f"<{m.lanes * dot.extent} x {_ELEMENT[dot.left]}>")
    m.store(buffer, indices, Value(text, dot.total, m.lanes))
    m.x.release(loop.var)


def _call(m: Memory, dot: DotProduct, total: str, factors: list[str], operand: str) -> str:
    """`total` and what the instruction adds to it; the factors are words, a lane each, of what it multiplies."""
    lanes, kind = m.lanes, stored_type(dot.total, m.lanes)
    symbol, adds = f"@{dot.symbol(lanes)}", dot.adds
    given = [m.w.value(f"bitcast <{lanes} x i32> {text} to {operand}") for text in factors]
    arguments = [f"{kind} {total}"] * adds + [f"{operand} {name}" for name in given]
    m.w.declare(f"{kind} {symbol}({', '.join([kind] * adds + [operand] * 2)})")
    text = m.w.value(f"call {kind} {symbol}({', '.join(arguments)})")
    return text if adds else m.w.value(f"add {kind} {total}, {text}")


def _pairs_added(m: Memory, dot: DotProduct, factors: list[str]) -> str:
    """`<2 * lanes x i16>`: the sums of both pairs of products of a lane."""
    operand, made, symbol = f"<{m.lanes * dot.extent} x i8>", f"<{m.lanes * 2} x i16>", f"@{dot.symbol(m.lanes)}"
    first, second = (m.w.value(f"bitcast <{m.lanes} x i32> {text} to {operand}") for text in factors)
    m.w.declare(f"{made} {symbol}({operand}, {operand})")
    return m.w.value(f"call {made} {symbol}({operand} {first}, {operand} {second})")


def _in_pairs(
    m: Memory, a: Arithmetic, loop: For, factors: list[Load | Const | Field], dot: DotProduct
) -> list[tuple[str, str]]:
    """Of each factor, two words a lane, each of two elements that are 16-bit integers now: the same two of all factors.

    Where lanes follow one another for each turn of the loop, two turns are one shuffle, which neighbours in a row
    share; elsewhere every second byte is masked or shifted.
    """
    beside = [_pairs_beside(m, loop, f, dot) for f in factors]
    split = _halves if all(x is None for x in beside) else _neighbours
    # All are read before any is split: code for CPUs with other instructions stays as it was.
    words = [_packed(m, a, loop, f, dot) if first is None else "" for f, first in zip(factors, beside)]
    found = []
    for f, first, text in zip(factors, beside, words):
        if first is not None and isinstance(f, Load):
            found.append(_woven(m, f, first))
        else:
            found.append(split(m, text, _dtype(f).is_signed))
    return found


def _pairs_beside(m: Memory, loop: For, factor: Load | Const | Field, dot: DotProduct) -> Offset | None:
    """Where a factor begins whose lanes fill half of 16 bytes for each turn of the loop; None for any other."""
    if m.lanes != PIECE // 2 or dot.adds or not isinstance(factor, Load) or factor.when or m.mask is not None:
        return None
    first, step = _places(m, loop, factor, dot)
    return first if first.lane == 1 and step == m.lanes else None


def _woven(m: Memory, load: Load, first: Offset) -> tuple[str, str]:
    """Both pairs of turns: 16 bytes in either half of a vector, of which each takes what its lanes need."""
    both, found = ", ".join(f"i32 {n}" for n in (*range(PIECE), *range(PIECE))), []
    for turn in (0, 2):
        place = Offset(first.const + turn * m.lanes, first.terms, first.lane)
        pointer = m.x.pointer(load.buffer, place, "i8")
        align = min(m.x.alignment(load.buffer, place), PIECE)
        text = m.w.value(f"load <{PIECE} x i8>, ptr {pointer}, align {align}")
        text = m.w.value(f"shufflevector <{PIECE} x i8> {text}, <{PIECE} x i8> poison, <{2 * PIECE} x i32> <{both}>")
        picked = [(lane, m.lanes + lane) for lane in range(m.lanes)]
        found.append(_widened(m, text, picked, load.buffer.dtype.is_signed))
    return found[0], found[1]


def _neighbours(m: Memory, words: str, signed: bool) -> tuple[str, str]:
    """The first two bytes of each word, and the other two, as 16-bit integers; words, two a lane."""
    count = 4 * m.lanes
    text = m.w.value(f"bitcast <{m.lanes} x i32> {words} to <{count} x i8>")
    low, high = (
        _widened(m, text, [(4 * lane + n, 4 * lane + n + 1) for lane in range(m.lanes)], signed) for n in (0, 2)
    )
    return low, high


def _widened(m: Memory, text: str, picked: list[tuple[int, int]], signed: bool) -> str:
    """`<lanes x i32>`: two bytes of a vector of two 16-byte halves for each lane, which lie in the same half as it."""
    count, nothing, places = 4 * m.lanes, -128, list[int]()
    for pair in picked:
        for byte in pair:
            places += [nothing, byte % PIECE] if signed else [byte % PIECE, nothing]
    kind, wide = f"<{count} x i8>", f"<{2 * m.lanes} x i16>"
    m.w.declare(f"{kind} @{_SHUFFLE}({kind}, {kind})")
    order = ", ".join(f"i8 {n}" for n in places)
    text = m.w.value(f"call {kind} @{_SHUFFLE}({kind} {text}, {kind} <{order}>)")
    if signed:
        text = m.w.value(f"bitcast {kind} {text} to {wide}")
        text = m.w.value(f"ashr {wide} {text}, splat (i16 8)")
        return m.w.value(f"bitcast {wide} {text} to <{m.lanes} x i32>")
    return m.w.value(f"bitcast {kind} {text} to <{m.lanes} x i32>")


def _halves(m: Memory, words: str, signed: bool) -> tuple[str, str]:
    """Every second byte of each word, and those between, as 16-bit integers; words, two a lane."""
    kind = f"<{m.lanes * 2} x i16>"
    pairs = m.w.value(f"bitcast <{m.lanes} x i32> {words} to {kind}")
    if signed:
        up = m.w.value(f"shl {kind} {pairs}, splat (i16 8)")
        low = m.w.value(f"ashr {kind} {up}, splat (i16 8)")
        high = m.w.value(f"ashr {kind} {pairs}, splat (i16 8)")
    else:
        low = m.w.value(f"and {kind} {pairs}, splat (i16 255)")
        high = m.w.value(f"lshr {kind} {pairs}, splat (i16 8)")
    low, high = (m.w.value(f"bitcast {kind} {half} to <{m.lanes} x i32>") for half in (low, high))
    return low, high


def _factor(e: Expr) -> Load | Const | Field:
    """What is multiplied: elements, or what surrounds them, or the bits of a word that they are."""
    field = field_of(e.a) if isinstance(e, Cast) else None
    if field is not None and isinstance(field.word, Load):
        return field
    if not isinstance(e, Cast) or not isinstance(e.a, (Load, Const)):
        raise CodegenError(f"`{e}` is no plain widened element; a dot-product instruction needs one")
    return e.a


def _dtype(factor: Load | Const | Field) -> DType:
    if isinstance(factor, Field):
        return DType.u8
    return factor.buffer.dtype if isinstance(factor, Load) else factor.dtype


def _packed(m: Memory, a: Arithmetic, loop: For, load: Load | Const | Field, dot: DotProduct) -> str:
    """`<lanes x i32>`: in each lane, the 4 bytes that the loop over `dot.extent` elements reads."""
    if isinstance(load, Const):
        return _repeated(load, m.lanes)
    if isinstance(load, Field):
        return _masked(m, a, loop, load)
    offset, step = _places(m, loop, load, dot)
    if offset.lane == 1:
        return _interleaved(m, a, loop, load, dot, offset, step)
    if any(isinstance(c, Linear) and loop.var in set(c.variables()) for c in load.when):
        raise CodegenError(f"the padding of `{load}` differs within {loop.var}; give {load.buffer.name} a halo")
    guard = m.mask if offset.lane else None
    mask = m.all_of(load.when, guard) if load.when else guard
    pointer = m.x.pointer(load.buffer, offset, stored_type(load.buffer.dtype))
    size = load.buffer.dtype.bytes
    broadcast = not offset.lane and (mask is None or not mask.lanes)
    if not offset.lane and not broadcast:
        raise CodegenError(f"the padding of `{load}` differs between lanes that share it; give it a halo")
    lanes = m.lanes if offset.lane else 1
    padding = _repeated(load.otherwise, lanes)
    if mask is not None and mask.const is False:
        return _repeated(load.otherwise, m.lanes)
    align = min(m.x.alignment(load.buffer, offset), 64) if offset.lane else size
    kind = f"<{lanes} x i32>"
    if mask is None:
        text = m.w.value(f"load {kind}, ptr {pointer}, align {align}")
    else:
        name = f"@llvm.masked.load.v{lanes}i32.p0"
        m.w.declare(f"{kind} {name}(ptr, <{lanes} x i1>, {kind})")
        bits = a.operand(mask, lanes)
        text = m.w.value(f"call {kind} {name}(ptr align {align} {pointer}, <{lanes} x i1> {bits}, {kind} {padding})")
    if offset.lane:
        return text
    return m.w.value(f"shufflevector {kind} {text}, {kind} poison, <{m.lanes} x i32> zeroinitializer")


def _masked(m: Memory, a: Arithmetic, loop: For, field: Field) -> str:
    """`<lanes x i32>`: of each byte of a word the bits that a turn of the loop asks for."""
    word, amount = field.word, field.amount
    assert isinstance(word, Load)
    starts = []
    for turn in range(loop.extent):
        m.x.bind(loop.var, turn)
        starts.append(m.x.offset(amount.value) if isinstance(amount, Index) else None)
    m.x.bind(loop.var, 0)
    first = starts[0]
    even = first is not None and starts == [Offset(first.const + 8 * n, (), 0) for n in range(loop.extent)]
    if first is None or not even or loop.var in variables(word):
        raise CodegenError(
            f"`{word}` is shifted by {amount} bits, not by whole bytes along {loop.var}; unroll the rest"
        )
    kind = f"<{m.lanes} x i32>"
    text = a.operand(m.load(word.buffer, word.indices, word.when, word.otherwise), m.lanes)
    if first.const:
        text = m.w.value(f"lshr {kind} {text}, splat (i32 {first.const})")
    mask = int.from_bytes(bytes([field.mask] * 4), "little", signed=True)
    return m.w.value(f"and {kind} {text}, splat (i32 {mask})")


def _repeated(value: Const | None, lanes: int) -> str:
    """`<lanes x i32>` of nothing but one element, None for 0."""
    if value is None or not value.value:
        return "zeroinitializer"
    if value.dtype.bytes != 1:
        raise CodegenError(
            f"a dot-product instruction reads bytes only beyond an edge, not {value.value} in {value.dtype}"
        )
    word = int.from_bytes(bytes([int(value.value) % 256] * 4), "little", signed=True)
    return f"<{', '.join([f'i32 {word}'] * lanes)}>"


def _interleaved(m: Memory, a: Arithmetic, loop: For, load: Load, dot: DotProduct, first: Offset, step: int) -> str:
    """`<lanes x i32>` of vectors along the lanes, one for each turn of the loop, `step` elements apart.

    Those that follow one another are one load: pixels of a row, whose channels are lanes.
    """
    lanes, count, dtype = m.lanes, m.lanes * dot.extent, load.buffer.dtype
    element, whole = stored_type(dtype), stored_type(dtype, count)
    picked = [n * lanes + lane for lane in range(lanes) for n in range(dot.extent)]
    if step == lanes and not load.when and m.mask is None:
        pointer = m.x.pointer(load.buffer, first, element)
        align = min(m.x.alignment(load.buffer, first), 64)
        parts = [m.w.value(f"load {whole}, ptr {pointer}, align {align}"), "poison"]
    else:
        parts = [_piece(m, a, loop, load, n) for n in range(dot.extent)]
        size = lanes
        while len(parts) > 2:
            kind, order = stored_type(dtype, size), ", ".join(f"i32 {n}" for n in range(2 * size))
            parts = [
                m.w.value(f"shufflevector {kind} {low}, {kind} {high}, <{2 * size} x i32> <{order}>")
                for low, high in zip(parts[::2], parts[1::2])
            ]
            size *= 2
        whole = stored_type(dtype, size)
    order = ", ".join(f"i32 {n}" for n in picked)
    text = m.w.value(f"shufflevector {whole} {parts[0]}, {whole} {parts[1]}, <{count} x i32> <{order}>")
    return m.w.value(f"bitcast {stored_type(dtype, count)} {text} to <{lanes} x i32>")


def _piece(m: Memory, a: Arithmetic, loop: For, load: Load, turn: int) -> str:
    """The lanes' elements of one turn of the loop, as they lie in memory."""
    m.x.bind(loop.var, turn)
    value = m.load(load.buffer, load.indices, load.when, load.otherwise)
    m.x.bind(loop.var, 0)
    return a.to_storage(Value(a.operand(value, m.lanes), value.dtype, m.lanes), load.buffer.dtype).text


def _places(m: Memory, loop: For, load: Load, dot: DotProduct) -> tuple[Offset, int]:
    """The place of the first element, and how far apart the others are.

    Neighbours that lanes share, or in which they follow one another; or lanes that are neighbours for each of them.
    """

    def at(n: int) -> Offset:
        m.x.bind(loop.var, n)
        try:
            return m.x.offset(m.x.flat(load.buffer, load.indices))
        except PerLane:
            return Offset(0, (), -1)

    places = [at(n) for n in range(dot.extent)]
    m.x.bind(loop.var, 0)
    first, step = places[0], places[1].const - places[0].const
    regular = all(p == Offset(first.const + n * step, first.terms, first.lane) for n, p in enumerate(places))
    if not regular or (first.lane != 1 and (step != 1 or first.lane not in (0, dot.extent))):
        raise CodegenError(
            f"{dot.name} needs {dot.extent} neighbours of {load.buffer.name} along {loop.var}, the same or the next "
            f"ones in each lane; give {load.buffer.name} a layout with {loop.var} in innermost blocks of {dot.extent}"
        )
    return first, step
