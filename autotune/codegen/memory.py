"""Loads and stores: contiguous, broadcast, gathered, masked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from autotune.codegen.arithmetic import Arithmetic
from autotune.codegen.byte_tables import looked_up
from autotune.codegen.index import LANE, Indexer, Offset, PerLane
from autotune.codegen.transpose import Turns, interleaved, transposed
from autotune.codegen.value import Value, computed_type, constant, mask_bits, mask_constant, stored_type, suffix
from autotune.codegen.writer import Writer
from autotune.core import LINE
from autotune.errors import CodegenError
from autotune.lower.ir import REGISTER, Buffer, Condition
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Const, Expr
from autotune.tensor.linear import Linear


class Memory:
    """Emits accesses under the current vector loop (`lanes`) and guard (`mask`)."""

    def __init__(self, writer: Writer, arithmetic: Arithmetic, indexer: Indexer) -> None:
        self.w, self.a, self.x = writer, arithmetic, indexer
        self.lane_var = ""
        self.lanes = 0
        self.mask: Value | None = None
        self.unrolled: list[Turns] = []
        self.unwritten: frozenset[str] = frozenset()  # buffers that nothing in the kernel writes
        self.permutes_bytes = False
        self.evaluate: Callable[[Expr], Value] = lambda e: constant(0, e.dtype)
        self.isolated: Callable[[Callable[[], Value]], Value] = lambda scalar: scalar()

    def per_lane(self, scalar: Callable[[], Value]) -> Value:
        """Evaluate once per lane, the lane being a constant, and put the results together."""
        variable, lanes, mask = self.lane_var, self.lanes, self.mask
        parts: list[Value] = []
        for n in range(lanes):
            self._as_scalar(variable, n, mask)
            parts.append(self.isolated(scalar))  # what is known of one lane is wrong for the next
        self.x.bind(variable, LANE)
        self.lanes, self.lane_var, self.mask = lanes, variable, mask
        dtype = parts[0].dtype
        kind, element = computed_type(dtype, lanes), computed_type(dtype)
        vector = "poison"
        for n, part in enumerate(parts):
            vector = self.w.value(f"insertelement {kind} {vector}, {element} {self.a.operand(part, 0)}, i64 {n}")
        return Value(vector, dtype, lanes)

    def _as_scalar(self, variable: str, lane: int, mask: Value | None) -> None:
        self.x.bind(variable, lane)
        self.lanes, self.lane_var = 0, ""
        self.mask = self._lane_of(mask, lane)

    def _lane_of(self, mask: Value | None, lane: int) -> Value | None:
        if mask is None or not mask.lanes:
            return mask
        return Value(self.w.value(f"extractelement <{mask.lanes} x i1> {mask.text}, i64 {lane}"), DType.bool)

    def condition(self, c: Condition) -> Value:
        """The truth of a condition: a constant, an i1, or a vector of i1."""
        if isinstance(c, Expr):
            return self.evaluate(c)
        try:
            offset = self.x.offset(c)
        except PerLane:
            places = self._places(c)
            if places is not None and not any(p.terms for p in places):
                return mask_constant([p.const >= 0 for p in places])
            return self.per_lane(lambda: self.condition(c))
        if not offset.lane:
            if not offset.terms:
                return constant(offset.const >= 0, DType.bool)
            return Value(self.w.value(f"icmp sge i64 {self.x.materialise(offset)}, 0"), DType.bool)
        if not offset.terms:
            return mask_constant([offset.const + offset.lane * n >= 0 for n in range(self.lanes)])
        if offset.lane in (1, -1) and self.lanes in (2, 4, 8, 16, 32):
            return self._lane_mask(offset)
        values = self.lane_numbers(offset)
        zero = constant(0, DType.i64)
        return self.a.binary("ge", values, zero)

    def _lane_mask(self, offset: Offset) -> Value:
        """offset >= 0 per lane, where lanes count by one: the lowest lanes hold, or the highest.

        A few bit operations on one register; comparing vectors of i64 would fill several with constants.
        """
        depth = max(self.w.depth(name) for name, _ in offset.terms)
        bound = self.x.materialise(Offset(offset.const + 1 if offset.lane < 0 else offset.const, offset.terms, 0))
        for name in ("smax", "smin"):
            self.w.declare(f"i64 @llvm.{name}.i64(i64, i64)")
        count = bound if offset.lane < 0 else self.w.hoisted(depth, f"sub i64 0, {bound}")
        above = self.w.hoisted(depth, f"call i64 @llvm.smax.i64(i64 {count}, i64 0)")
        inside = self.w.hoisted(depth, f"call i64 @llvm.smin.i64(i64 {above}, i64 {self.lanes})")
        # -1 << n has the lowest n bits clear.
        bits = self.w.hoisted(depth, f"shl i64 -1, {inside}")
        if offset.lane < 0:
            bits = self.w.hoisted(depth, f"xor i64 {bits}, -1")
        narrow = self.w.hoisted(depth, f"trunc i64 {bits} to i{self.lanes}")
        mask = self.w.hoisted(depth, f"bitcast i{self.lanes} {narrow} to <{self.lanes} x i1>")
        return Value(mask, DType.bool, self.lanes)

    def lane_numbers(self, offset: Offset) -> Value:
        """A vector of i64: the offset in each lane."""
        first = Value(self.x.materialise(offset), DType.i64)
        if not offset.terms:
            first = constant(offset.const, DType.i64)
        steps = ", ".join(f"i64 {offset.lane * n}" for n in range(self.lanes))
        return self.a.binary("add", first, Value(f"<{steps}>", DType.i64, self.lanes))

    def all_of(self, conditions: tuple[Condition, ...], known: Value | None) -> Value | None:
        """Conjunction with what is already known to hold; None when all hold for certain."""
        return self.conjunction((self.condition(c) for c in conditions), known)

    def conjunction(self, values: Iterable[Value], known: Value | None = None) -> Value | None:
        """The same of conditions that are evaluated."""
        total = known
        for value in values:
            if value.const is True:
                continue
            if value.const is False:
                return value
            total = value if total is None else self.a.binary("and", total, value)
        return total

    def load(
        self, buffer: Buffer, indices: tuple[Linear, ...], when: tuple[Condition, ...], otherwise: Const | None
    ) -> Value:
        """The element, or the vector of the lanes' elements; `otherwise` where `when` fails."""
        mask = self.all_of(when, None) if when else None
        fallback = None if otherwise is None else constant(otherwise.value, buffer.dtype)
        if mask is not None and mask.const is False:
            return fallback or constant(0, buffer.dtype)
        try:
            offset = self.x.offset(self.x.flat(buffer, indices))
        except PerLane:
            offset = None
        if offset is None or offset.lane not in (0, 1):
            if mask is None:
                shuffled = looked_up(self, buffer, indices) or self._shuffled(buffer, indices, when)
            else:
                shuffled = self._shuffled_partly(buffer, indices, when, mask, fallback)
            return shuffled or self.per_lane(lambda: self.load(buffer, indices, when, otherwise))
        if offset.lane == 0 and mask is not None and mask.lanes:
            return self.per_lane(lambda: self.load(buffer, indices, when, otherwise))
        lanes = self.lanes if offset.lane else 0
        # A guard around the statement protects its loads, those of single lanes too; a broadcast element exists
        # whenever some lane is on, which `lower.simplify` makes sure of.
        guard = self.mask if (lanes or not self.lanes) and not _is_register(buffer, offset, lanes) else None
        if mask is None:
            mask, key = guard, (offset, lanes, guard.text if guard else "")
        else:
            mask = mask if guard is None else self.a.binary("and", mask, guard)
            key = (offset, lanes, f"{mask.text}|{fallback.const if fallback else 0}")
        loads = self.w.scopes[-1].loads.setdefault(buffer.name, {})
        kept = loads.get(key)
        if isinstance(kept, Value):
            return kept
        if mask is guard and lanes and self._whole_register(buffer, offset, lanes):
            mask = None
        value = self._read(buffer, offset, lanes, mask, fallback)
        loads[key] = value
        return value

    def _shuffled(self, buffer: Buffer, indices: tuple[Linear, ...], when: tuple[Condition, ...]) -> Value | None:
        """Lanes that are no neighbours, from loads of neighbours; None where elements are loaded one by one."""
        return (
            self._permuted(buffer, indices)
            or transposed(self, buffer, indices, when)
            or interleaved(self, buffer, indices)
            or self._permuted(buffer, indices, aligned=False)
        )

    def _shuffled_partly(
        self, buffer: Buffer, indices: tuple[Linear, ...], when: tuple[Condition, ...], mask: Value,
        fallback: Value | None,
    ) -> Value | None:  # fmt: skip
        """The same where some lanes, known while compiling, read the fallback, or all of them if a condition fails."""
        on, guard = mask_bits(mask), None
        if on is None:
            known = [self.condition(c) for c in when]
            guard = self.conjunction([v for v in known if not v.lanes])
            lanes = self.conjunction([v for v in known if v.lanes])
            on = (True,) * self.lanes if lanes is None else mask_bits(lanes)
        if on is None or len(on) != self.lanes:
            return None
        if guard is None:
            found = self._permuted(buffer, indices, on=on) or self._permuted(buffer, indices, on=on, aligned=False)
            if found is not None:
                return self.a.select(mask, found, fallback or constant(0, buffer.dtype))
        return interleaved(self, buffer, indices, on, guard, fallback)

    def _permuted(
        self, buffer: Buffer, indices: tuple[Linear, ...], on: Sequence[bool] | None = None, aligned: bool = True
    ) -> Value | None:
        """Lanes whose elements lie in two vectors of the buffer: these are loaded and shuffled.

        None where the elements are further apart, or at places that are not known relative to each other.

        Args:
            buffer: where the elements are.
            indices: of a lane's element.
            on: the lanes that read; None for all.
            aligned: take neighbouring vectors at multiples of their length, which other loads share; else those that
                begin with the first element and end with the last.
        """
        active = (True,) * self.lanes if self.mask is None else mask_bits(self.mask)
        if buffer.scope == REGISTER or active is None:
            return None
        active = active if on is None else tuple(a and b for a, b in zip(active, on, strict=True))
        if not any(active):
            return None
        places = self._places(self.x.flat(buffer, indices))
        if places is None:
            return None
        # Vectors of `width` elements at multiples of `width` lie inside the buffer, whole.
        width = math.gcd(self.lanes, buffer.elements, *(c for _, c in places[0].terms))
        touched = [p.const for p, on in zip(places, active, strict=True) if on]
        least, most = min(touched), max(touched)
        first = least // width * width
        if aligned:
            if width == 1 or most >= first + 2 * width:
                return None
            second = first + width if most >= first + width else first
        else:
            # Everything between two elements that exist exists.
            width = 1 << min(most + 1 - least, self.lanes).bit_length() - 1
            if most + 1 - least > 2 * width:
                return None
            first, second = least, most + 1 - width
        low, high = (self._vector(buffer, Offset(at, places[0].terms, 1), width) for at in (first, second))
        kind = computed_type(low.dtype, width)
        at = [p.const - first if p.const < first + width else p.const - second + width for p in places]
        picked = ", ".join(f"i32 {n}" if on else "i32 poison" for n, on in zip(at, active))
        text = f"shufflevector {kind} {low.text}, {kind} {high.text}, <{self.lanes} x i32> <{picked}>"
        return Value(self.w.once(text, text), low.dtype, self.lanes)

    def _places(self, value: Linear) -> list[Offset] | None:
        """A form in each lane; None where they are not known relative to each other."""
        places: list[Offset] = []
        try:
            for n in range(self.lanes):
                self.x.bind(self.lane_var, n)
                places.append(self.x.offset(value))
                if places[n].terms != places[0].terms:
                    return None
        except PerLane:  # read from memory
            return None
        finally:
            self.x.bind(self.lane_var, LANE)
        return places

    def _vector(self, buffer: Buffer, offset: Offset, width: int) -> Value:
        """Neighbouring elements, all of which exist."""
        loads = self.w.scopes[-1].loads.setdefault(buffer.name, {})
        kept = loads.get((offset, width, ""))
        if not isinstance(kept, Value):
            loads[(offset, width, "")] = kept = self._read(buffer, offset, width, None, None)
        return kept

    def _read(self, buffer: Buffer, offset: Offset, lanes: int, mask: Value | None, fallback: Value | None) -> Value:
        element = stored_type(buffer.dtype)
        kind = stored_type(buffer.dtype, lanes)
        if mask is None and not lanes and (early := self._before(buffer, offset, element)) is not None:
            return self.a.from_storage(early, buffer.dtype, 0)
        pointer = self.x.pointer(buffer, offset, element)
        align = self.x.alignment(buffer, offset) if lanes else buffer.dtype.bytes
        if mask is None:
            text = self.w.value(f"load {kind}, ptr {pointer}, align {align}")
            return self.a.from_storage(text, buffer.dtype, lanes)
        width = lanes or 1
        passthru = self._stored_constant(fallback or constant(0, buffer.dtype), buffer.dtype, width)
        text = self.w.masked_load(buffer.dtype, width, pointer, align, self.a.operand(mask, width), passthru)
        if not lanes:
            text = self.w.value(f"extractelement {stored_type(buffer.dtype, width)} {text}, i64 0")
        return self.a.from_storage(text, buffer.dtype, lanes)

    def _before(self, buffer: Buffer, offset: Offset, element: str) -> str | None:
        """A narrow number that all turns of the innermost loop read, loaded before it; None where it is another.

        What widens it and copies it to all lanes, LLVM then takes out of the loop, too. Wider ones are operands of the
        instructions that need them, and take no register.
        """
        if buffer.name not in self.unwritten or buffer.dtype.bits >= DType.f32.bits:
            return None
        if not self.w.outside(name for name, _ in offset.terms):
            return None
        pointer = self.x.pointer(buffer, Offset(0, offset.terms, 0), element)
        if offset.const:
            pointer = self.w.before(f"getelementptr inbounds {element}, ptr {pointer}, i64 {offset.const}")
        return self.w.before(f"load {element}, ptr {pointer}, align {buffer.dtype.bytes}")

    @staticmethod
    def _whole_register(buffer: Buffer, offset: Offset, lanes: int) -> bool:
        """All lanes lie in a register tile: they may be accessed unmasked, and must be, for LLVM to promote it."""
        return buffer.scope == REGISTER and not offset.terms and 0 <= offset.const <= buffer.elements - lanes

    def _stored_constant(self, value: Value, dtype: DType, width: int) -> str:
        stored = self.a.to_storage(Value(value.text, value.dtype, 0, value.const), dtype, width)
        return stored.text

    def store(self, buffer: Buffer, indices: tuple[Linear, ...], value: Value) -> None:
        """Write a value; under a vector loop every lane writes its own element."""
        try:
            offset = self.x.offset(self.x.flat(buffer, indices))
        except PerLane:
            self._scatter(buffer, indices, value)
            return
        if self.lanes and offset.lane == 0:
            if value.lanes or (self.mask is not None and self.mask.lanes):
                raise CodegenError(f"all lanes of {self.lane_var} write the same element of {buffer.name}")
        elif offset.lane not in (0, 1):
            self._scatter(buffer, indices, value)
            return
        lanes = self.lanes if offset.lane else 0
        stored = self.a.to_storage(value, buffer.dtype, lanes)
        kind = stored_type(buffer.dtype, lanes)
        pointer = self.x.pointer(buffer, offset, stored_type(buffer.dtype))
        align = self.x.alignment(buffer, offset) if lanes else buffer.dtype.bytes
        self.w.forget(buffer.name)
        if self.mask is None or not lanes:
            self.w.emit(f"store {kind} {stored.text}, ptr {pointer}, align {align}")
            return
        if self._whole_register(buffer, offset, lanes):
            mask = self.a.operand(self.mask, lanes)
            old = self.w.value(f"load {kind}, ptr {pointer}, align {align}")
            new = self.w.value(f"select <{lanes} x i1> {mask}, {kind} {stored.text}, {kind} {old}")
            self.w.emit(f"store {kind} {new}, ptr {pointer}, align {align}")
            return
        bits = mask_bits(self.mask)
        if bits is not None and sum(bits) == 1:
            # LLVM 22 writes twice the bytes when it narrows values and stores one lane of them by a constant mask.
            self._store_lane(buffer, offset, stored.text, bits.index(True))
            return
        name = f"@llvm.masked.store.{suffix(buffer.dtype, lanes)}.p0"
        self.w.declare(f"void {name}({kind}, ptr, <{lanes} x i1>)")
        self.w.emit(
            f"call void {name}({kind} {stored.text}, ptr align {align} {pointer}, "
            f"<{lanes} x i1> {self.a.operand(self.mask, lanes)})"
        )

    def _store_lane(self, buffer: Buffer, offset: Offset, vector: str, lane: int) -> None:
        """Store one lane of a contiguous vector access."""
        element, kind = stored_type(buffer.dtype), stored_type(buffer.dtype, self.lanes)
        text = self.w.value(f"extractelement {kind} {vector}, i64 {lane}")
        pointer = self.x.pointer(buffer, Offset(offset.const + lane, offset.terms, 0), element)
        self.w.emit(f"store {element} {text}, ptr {pointer}, align {buffer.dtype.bytes}")

    def _scatter(self, buffer: Buffer, indices: tuple[Linear, ...], value: Value) -> None:
        variable, lanes, mask = self.lane_var, self.lanes, self.mask
        for n in range(lanes):
            part = value
            if value.lanes:
                kind = computed_type(value.dtype, value.lanes)
                part = Value(self.w.value(f"extractelement {kind} {value.text}, i64 {n}"), value.dtype)
            self._as_scalar(variable, n, mask)
            guard = self.mask
            self.mask = None
            if guard is None:
                self.store(buffer, indices, part)
            else:
                label = self.w.open_branch(self.a.operand(guard, 0))
                self.store(buffer, indices, part)
                self.w.close_branch(label)
        self.x.bind(variable, LANE)
        self.lanes, self.lane_var, self.mask = lanes, variable, mask

    def prefetch(self, buffer: Buffer, indices: tuple[Linear, ...], level: int) -> None:
        """Ask for a cache line, into cache `level`; never faults. One request is enough for all that lies on a line."""
        saved = self.x.bound(self.lane_var)
        if self.lane_var:
            self.x.bind(self.lane_var, 0)
        offset = self.x.offset(self.x.flat(buffer, indices))
        if self.lane_var and saved is not None:
            self.x.bind(self.lane_var, saved)
        asked = "prefetch", buffer.name, offset.terms, offset.const * buffer.dtype.bytes // LINE, level
        if self.w.known(asked):
            return
        # Near the end, the address lies beyond the buffer.
        pointer = self.x.pointer(buffer, offset, stored_type(buffer.dtype), inside=False)
        self.w.scopes[-1].known[asked] = pointer
        self.w.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.w.emit(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 {4 - level}, i32 1)")


def _is_register(buffer: Buffer, offset: Offset, lanes: int) -> bool:
    """All lanes are inside a register tile: reading it whole keeps it in registers."""
    return buffer.scope == REGISTER and not offset.terms and 0 <= offset.const <= buffer.elements - lanes
