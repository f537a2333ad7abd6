"""Small constant matrices: folded where unrolling made their indices constants, else read from the constant pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.codegen.arithmetic import Arithmetic
from autotune.codegen.index import Indexer, PerLane
from autotune.codegen.memory import Memory
from autotune.codegen.value import Value, computed_type, constant, stored_literal, stored_type
from autotune.codegen.writer import Writer
from autotune.lower.ir import Index
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Lookup, Table
from autotune.tensor.linear import Linear

ALIGN = 64


class Tables:
    """Emits elements of tables; `constants` are the globals that hold them: text to name."""

    def __init__(
        self,
        writer: Writer,
        arithmetic: Arithmetic,
        indexer: Indexer,
        memory: Memory,
        evaluate: Callable[[Expr], Value],
    ) -> None:
        self.w, self.a, self.x, self.m, self.evaluate = writer, arithmetic, indexer, memory, evaluate
        self.constants: dict[str, str] = {}
        self._entries: dict[tuple[int, int, DType], Value] = {}

    def value(self, e: Table) -> Value:
        """A constant where unrolling made the indices constants, else a load from the constant pool."""
        place = self._constant_place(e)
        if place is not None:
            key = (id(e.values), place, e.dtype)
            kept = self._entries.get(key)
            if kept is None:
                kept = self._entries[key] = constant(e.values[place], e.dtype, structural=True)
            return kept
        row = self._row(e)
        if row is not None:
            return row
        positions = [self.evaluate(index) for index in e.indices]
        lanes = max(p.lanes for p in positions)
        if lanes:
            return self.m.per_lane(lambda: self.value(e))
        total = constant(0, DType.i64)
        for position, extent in zip(positions, e.shape):
            total = self.a.binary("add", self.a.binary("mul", total, constant(extent, DType.i64)), position)
        if self.m.mask is not None:
            last = constant(len(e.values) - 1, DType.i64)
            total = self.a.binary("min", self.a.binary("max", total, constant(0, DType.i64)), last)
        name, kind = self._pool(e), stored_type(e.dtype)
        pointer = self.w.value(f"getelementptr inbounds {kind}, ptr {name}, i64 {self.a.operand(total, 0)}")
        text = self.w.value(f"load {kind}, ptr {pointer}, align {e.dtype.bytes}")
        return self.a.from_storage(text, e.dtype, 0)

    def lookup(self, e: Lookup, vector_bits: int) -> Value:
        """A permutation of the register that the table fills; arithmetic where its values are evenly spaced."""
        index = self.evaluate(e.index)
        if index.const is not None:
            return constant(e.values[int(index.const) % len(e.values)], e.dtype)
        if index.lanes == 16 and vector_bits == 512 and e.dtype is DType.f32:
            return self._permuted("avx512.permvar.sf.512", e.values * (16 // len(e.values)), index)
        if index.lanes == 8 and e.dtype is DType.f32 and len(e.values) <= 8:
            return self._permuted("avx2.permps", e.values * (8 // len(e.values)), index)
        field = self.a.binary("and", index, constant(len(e.values) - 1, DType.u32))
        first, step = e.values[0], e.values[1] - e.values[0]
        if e.values == tuple(first + n * step for n in range(len(e.values))):
            number = self.a.cast(self.a.cast(field, DType.i32), e.dtype)
            scaled = number if step == 1 else self.a.binary("mul", number, constant(step, e.dtype))
            return scaled if first == 0 else self.a.binary("add", scaled, constant(first, e.dtype))
        if index.lanes == 8 and e.dtype is DType.f32:
            halves = [self._permuted("avx2.permps", part, index) for part in (e.values[:8], e.values[8:])]
            return self.a.select(self.a.binary("ge", field, constant(8, DType.u32)), halves[1], halves[0])
        found = constant(e.values[0], e.dtype)
        for n, number_ in enumerate(e.values[1:], 1):
            found = self.a.select(self.a.binary("eq", field, constant(n, DType.u32)), constant(number_, e.dtype), found)
        return found

    def _permuted(self, intrinsic: str, values: Sequence[float], index: Value) -> Value:
        kind, places = computed_type(DType.f32, index.lanes), computed_type(DType.u32, index.lanes)
        table = ", ".join(f"float {stored_literal(v, DType.f32)}" for v in values)
        symbol = f"@llvm.x86.{intrinsic}"
        self.w.declare(f"{kind} {symbol}({kind}, {places})")
        text = self.w.value(f"call {kind} {symbol}({kind} <{table}>, {places} {index.text})")
        return Value(text, DType.f32, index.lanes)

    def known(self, e: Table) -> int | None:
        """A whole number whose place is known while compiling."""
        place = self._constant_place(e) if all(isinstance(i, Index) for i in e.indices) else None
        return None if place is None else int(e.values[place])

    def _row(self, e: Table) -> Value | None:
        """Neighbouring elements for neighbouring lanes, as one vector; None where they are not neighbours."""
        if not self.m.lanes or self.m.mask is not None or not all(isinstance(i, Index) for i in e.indices):
            return None
        flat = Linear()
        for index, extent in zip(e.indices, e.shape, strict=True):
            assert isinstance(index, Index)
            flat = flat * extent + index.value
        try:
            offset = self.x.offset(flat)
        except PerLane:
            return None
        if offset.lane != 1 or e.dtype.bits != 8 * e.dtype.bytes:
            return None
        place = self.x.materialise(offset)
        pointer = self.w.value(f"getelementptr inbounds {stored_type(e.dtype)}, ptr {self._pool(e)}, i64 {place}")
        kind = stored_type(e.dtype, self.m.lanes)
        text = self.w.value(f"load {kind}, ptr {pointer}, align {e.dtype.bytes}")
        return self.a.from_storage(text, e.dtype, self.m.lanes)

    def _constant_place(self, e: Table) -> int | None:
        """The position in `e.values`; None where it is known at run time only."""
        place = 0
        for index, extent in zip(e.indices, e.shape):
            if isinstance(index, Index):
                try:
                    offset = self.x.offset(index.value)
                except PerLane:
                    return None
                if offset.terms or offset.lane:
                    return None
                position = offset.const
            else:
                value = self.evaluate(index)
                if value.const is None:
                    return None
                position = int(value.const)
            place = place * extent + position
        # Beyond the table in lanes and rounds that a guard switches off.
        return min(max(place, 0), len(e.values) - 1)

    def _pool(self, e: Table) -> str:
        """The global that holds a small constant matrix."""
        kind = stored_type(e.dtype)
        elements = ", ".join(f"{kind} {stored_literal(v, e.dtype)}" for v in e.values)
        text = f"private unnamed_addr constant [{len(e.values)} x {kind}] [{elements}], align {ALIGN}"
        return self.constants.setdefault(text, f"@table{len(self.constants)}")
