"""Real numbers that become bytes: rounded to i32 and narrowed with saturation, several vectors at once.

    u8(round(x) + z)  -->  packuswb(sadd.sat(packssdw(cvtps2dq(min(x, far)), ...), z), ...)

Rounding, half to even, comes before the zero point is added, so that nothing is rounded twice. Vectors whose bytes
follow one another share their packing: stores of an unrolled tile wait until their neighbours are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from autotune.codegen.arithmetic import Arithmetic
from autotune.codegen.index import Offset, PerLane
from autotune.codegen.memory import Memory
from autotune.codegen.value import Value, computed_type, constant
from autotune.codegen.writer import Writer
from autotune.lower.ir import Buffer, Store
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr, Unary

BYTES = (DType.u8, DType.i8)
BEYOND_BYTES = 65536.0
"""Beyond every byte, and the integer next to it fits: where overflow would turn the sign."""
TOGETHER = 4
"""Vectors of i32 that make one of bytes."""

_ROUND = {4: "llvm.x86.sse2.cvtps2dq", 8: "llvm.x86.avx.cvt.ps2dq.256", 16: "llvm.x86.avx512.mask.cvtps2dq.512"}
_PACK = {4: "llvm.x86.sse2.{}.128", 8: "llvm.x86.avx2.{}", 16: "llvm.x86.avx512.{}.512"}


@dataclass(slots=True)
class _Chain:
    """Vectors of i32 whose bytes follow one another in memory, from `place` on, all with one zero point."""

    buffer: Buffer
    place: Offset
    zero: Value
    vectors: list[str] = field(default_factory=list)

    def next(self, lanes: int) -> Offset:
        return Offset(self.place.const + lanes * len(self.vectors), self.place.terms, self.place.lane)


class Quantizer:
    """Emits conversions to bytes for the current vector loop."""

    def __init__(
        self, writer: Writer, arithmetic: Arithmetic, memory: Memory, value: Callable[[Expr], Value], vector_bits: int
    ) -> None:
        self.w, self.a, self.m, self._value, self._lanes = writer, arithmetic, memory, value, vector_bits // 32
        self._chains: list[_Chain] | None = None

    def value(self, e: Cast) -> Value | None:
        """The bytes of a vector; None where `e` is another conversion, or the CPU has no such vectors."""
        parts = _parts(e)
        if parts is None or self.m.lanes not in _ROUND or self.m.lanes > self._lanes:
            return None
        x, zero = self._value(parts[0]), self._value(parts[1])
        if x.lanes != self.m.lanes:
            return None
        whole = Value(self._rounded(x, zero, e.dtype), DType.i32, x.lanes)
        return self._narrowed(whole, zero, e.dtype)

    def centred(self, e: Binary) -> Value | None:
        """What a byte stands for, without making it one; None where `e` is something else.

        f32(u8(round(x) + z)) - f32(z)  -->  max(min(round(x), 255 - z), 0 - z)
        """
        byte = e.a.a if e.op == "sub" and isinstance(e.a, Cast) and e.dtype is DType.f32 else None
        parts = _parts(byte) if isinstance(byte, Cast) else None
        if parts is None or byte is None or e.b not in (Cast(parts[1], DType.f32), _real(parts[1])):
            return None
        x, zero = self._value(parts[0]), self._value(e.b)
        if x.lanes != self.m.lanes or not x.lanes:
            return None
        least, most = (-128, 127) if byte.dtype.is_signed else (0, 255)
        if byte.dtype.is_signed:
            x = self.a.select(self.a.binary("eq", x, x), x, self.a.negate(zero))
        low, high = (self.a.binary("sub", constant(float(end), DType.f32), zero) for end in (least, most))
        rounded = self.a.intrinsic("roundeven", DType.f32, x)
        bounded = self.a.select(self.a.binary("lt", high, rounded), high, rounded)
        return self.a.select(self.a.binary("lt", low, bounded), bounded, low)

    def wait(self) -> bool:
        """Stores may come after all else in the unrolled loop that begins here, and `flush` follows it; False where
        they already may in a loop around."""
        if self._chains is not None:
            return False
        self._chains = []
        return True

    def store(self, stmt: Store) -> bool:
        """Take over a store of bytes, to come with its neighbours; False where it is another one, or nothing waits."""
        e, ((buffer, indices), *others) = stmt.values[0], stmt.targets
        parts = _parts(e) if isinstance(e, Cast) and e.dtype is buffer.dtype and not others else None
        lanes = self._lanes
        if self._chains is None or parts is None or self.m.mask is not None or lanes != self.m.lanes:
            return False
        try:
            place = self.m.x.offset(self.m.x.flat(buffer, indices))
        except PerLane:
            return False
        zero = self._value(parts[1])
        x = self._value(parts[0]) if place.lane == 1 and not zero.lanes else zero
        if x.lanes != lanes:
            return False
        found = (c for c in self._chains if c.buffer is buffer and c.zero == zero and c.next(lanes) == place)
        chain = next(found, None)
        if chain is None:
            chain = _Chain(buffer, place, zero)
            self._chains.append(chain)
        chain.vectors.append(self._rounded(x, zero, buffer.dtype))
        if len(chain.vectors) == TOGETHER:
            self._write(chain)
            self._chains.remove(chain)
        return True

    def flush(self) -> None:
        """Write what still waits."""
        for chain in self._chains or ():
            self._write(chain)
        self._chains = None

    def _rounded(self, x: Value, zero: Value, to: DType) -> str:
        """The nearest i32 of each lane. NaN becomes the least of them, or for signed bytes what makes their sum 0."""
        lanes = x.lanes
        if to.is_signed:
            known = self.a.binary("eq", x, x)
            x = self.a.select(known, x, self.a.negate(self.a.cast(zero, DType.f32)))
        far = constant(BEYOND_BYTES, DType.f32)
        x = self.a.select(self.a.binary("lt", far, x), far, x)
        kinds = computed_type(DType.f32, lanes), computed_type(DType.i32, lanes)
        given, more = [f"{kinds[0]} {x.text}"], [kinds[0]]
        if lanes == 16:
            given += [f"{kinds[1]} zeroinitializer", "i16 -1", "i32 4"]
            more += [kinds[1], "i16", "i32"]
        self.w.declare(f"{kinds[1]} @{_ROUND[lanes]}({', '.join(more)})")
        return self.w.value(f"call {kinds[1]} @{_ROUND[lanes]}({', '.join(given)})")

    def _narrowed(self, whole: Value, zero: Value, to: DType) -> Value:
        """One vector's bytes, for LLVM to find the instruction."""
        least, most = (-128, 127) if to.is_signed else (0, 255)
        if to.is_signed:  # a zero point below 0 must not turn the sign of the least integer
            whole = self.a.binary("max", whole, constant(-int(BEYOND_BYTES), DType.i32))
        whole = self.a.binary("add", whole, self.a.cast(zero, DType.i32))
        whole = self.a.binary("max", whole, constant(least, DType.i32))
        whole = self.a.binary("min", whole, constant(most, DType.i32))
        return self.a.cast(whole, to)

    def _write(self, chain: _Chain) -> None:
        step = 2 if len(chain.vectors) < TOGETHER else TOGETHER
        for first in range(0, len(chain.vectors), step):
            place = Offset(chain.place.const + self._lanes * first, chain.place.terms, 1)
            self._write_part(chain, place, chain.vectors[first : first + step])

    def _write_part(self, chain: _Chain, place: Offset, vectors: list[str]) -> None:
        lanes, dtype = self._lanes, chain.buffer.dtype
        count = lanes * len(vectors)
        if len(vectors) == 1:
            text = self._narrowed(Value(vectors[0], DType.i32, lanes), chain.zero, dtype).text
        else:
            text = self._packed(vectors, chain.zero, dtype)
        pointer = self.m.x.pointer(chain.buffer, place, "i8")
        align = self.m.x.alignment(chain.buffer, place)
        self.w.forget(chain.buffer.name)
        self.w.emit(f"store <{count} x i8> {text}, ptr {pointer}, align {align}")

    def _packed(self, vectors: list[str], zero: Value, to: DType) -> str:
        """The bytes of two or four vectors, in their order: packs work in parts of 128 bits, which are then sorted."""
        lanes, wide = self._lanes, f"<{self._lanes} x i32>"
        small = f"<{2 * lanes} x i16>"
        offset = self.a.operand(self.a.cast(zero, DType.i16), 2 * lanes)
        halves = [vectors[n : n + 2] for n in range(0, len(vectors), 2)]
        pairs = [self._pack("packssdw", wide, small, *half) for half in halves]
        if zero.const != 0:
            symbol = f"@llvm.sadd.sat.v{2 * lanes}i16"
            self.w.declare(f"{small} {symbol}({small}, {small})")
            pairs = [self.w.value(f"call {small} {symbol}({small} {p}, {small} {offset})") for p in pairs]
        name = "packsswb" if to.is_signed else "packuswb"
        joined = self._pack(name, small, f"<{4 * lanes} x i8>", pairs[0], pairs[-1])
        parts = lanes // 4  # of 128 bits, each of which has four bytes of every vector
        order = [part * 4 + vector for vector in range(len(vectors)) for part in range(parts)]
        words = self.w.value(f"bitcast <{4 * lanes} x i8> {joined} to {wide}")
        picked = ", ".join(f"i32 {n}" for n in order)
        words = self.w.value(f"shufflevector {wide} {words}, {wide} poison, <{len(order)} x i32> <{picked}>")
        return self.w.value(f"bitcast <{len(order)} x i32> {words} to <{4 * len(order)} x i8>")

    def _pack(self, name: str, source: str, goal: str, low: str, high: str) -> str:
        symbol = f"@{_PACK[self._lanes].format(name)}"
        self.w.declare(f"{goal} {symbol}({source}, {source})")
        return self.w.value(f"call {goal} {symbol}({source} {low}, {source} {high})")


def _parts(e: Cast) -> tuple[Expr, Expr] | None:
    """(x, z) of a byte that is round(x) + z, x in f32 and z a byte; None for anything else."""
    if e.dtype not in BYTES or e.a.dtype is not DType.f32:
        return None
    total: Expr = e.a
    zero: Expr = Const(0, e.dtype)
    if isinstance(total, Binary) and total.op == "add" and isinstance(total.b, (Cast, Const)):
        z = total.b.a if isinstance(total.b, Cast) else _byte(total.b, e.dtype)
        if z is None or z.dtype is not e.dtype:
            return None
        total, zero = total.a, z
    return (total.a, zero) if isinstance(total, Unary) and total.op == "round" else None


def _real(zero: Expr) -> Expr | None:
    """A constant zero point as it is subtracted; None for another one."""
    return Const(float(zero.value), DType.f32) if isinstance(zero, Const) else None


def _byte(c: Const, dtype: DType) -> Const | None:
    value = int(c.value) if float(c.value).is_integer() else None
    return None if value is None or not 0 <= value + 128 * dtype.is_signed < 256 else Const(value, dtype)
