"""Loop IR to LLVM IR text.

Unrolled and vectorized loops never become IR: unrolled variables are constants while their body is emitted again and
again, the vectorized variable is a lane number. What is left to LLVM is promotion of register tiles and allocation.
"""

from __future__ import annotations

from collections.abc import Callable

from autotune.codegen.arithmetic import Arithmetic
from autotune.codegen.dot import emit_dot
from autotune.codegen.functions import Functions
from autotune.codegen.halves import Halves
from autotune.codegen.index import LANE, Indexer, PerLane
from autotune.codegen.memory import Memory
from autotune.codegen.polynomials import LDEXP
from autotune.codegen.quantizing import Quantizer
from autotune.codegen.tables import Tables
from autotune.codegen.tiles import TileRegisters
from autotune.codegen.transpose import Turns
from autotune.codegen.unrolled import Unrolled
from autotune.codegen.value import Value, computed, computed_type, constant, stored_type
from autotune.codegen.writer import MOST_CLAIMED, Writer
from autotune.errors import CodegenError
from autotune.lower.ir import (
    LOCAL,
    REGISTER,
    SHARED,
    Apart,
    Barrier,
    Buffer,
    For,
    If,
    Index,
    Load,
    LoopProgram,
    Once,
    Prefetch,
    Stmt,
    Store,
    expressions,
    statements,
    variables,
)
from autotune.schedule.dot_products import DOT_PRODUCTS, on_tiles
from autotune.schedule.state import UNROLL, VECTORIZE
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr, Lookup, Reinterpret, Select, Table, Unary

ALIGN = 64
_WRITTEN_OUT = frozenset({UNROLL, VECTORIZE, *DOT_PRODUCTS})
"""Marks of loops whose turns are one straight line of code."""


def scratch_offsets(program: LoopProgram, scope: str) -> tuple[dict[str, int], int]:
    """Byte offset of each scratch buffer of a scope, and their total size."""
    offsets, total = {}, 0
    for b in program.buffers:
        if b.scope == scope:
            offsets[b.name] = total
            total += -(-b.bytes // ALIGN) * ALIGN
    return offsets, total


def emit(program: LoopProgram, vector_bits: int, *, permutes_bytes: bool = False, rounds_to_bf16: bool = False) -> str:
    """LLVM IR of the kernel `void name(ptr frame, i64 thread_id, i64 num_threads)`.

    The frame holds one pointer per operand, then shared scratch, per-thread scratch, and the barrier.

    Args:
        permutes_bytes, rounds_to_bf16: instructions that the CPU has. The second takes subnormal numbers for zero, so
            only kernels that add up use it: there those are less than what is rounded anyway.
    """
    return _Emitter(program, vector_bits, permutes_bytes, rounds_to_bf16 and _adds_up(program)).module()


def _adds_up(program: LoopProgram) -> bool:
    return any(isinstance(stmt, Store) and stmt.fold == "sum" for stmt in statements(program.body))


class _Emitter:
    def __init__(self, program: LoopProgram, vector_bits: int, permutes_bytes: bool, rounds_to_bf16: bool) -> None:
        self.program, self.vector_bits = program, vector_bits
        self.w = Writer()
        self.a = Arithmetic(self.w, rounds_to_bf16=rounds_to_bf16)
        self.x = Indexer(self.w, self._opaque_index)
        self.m = Memory(self.w, self.a, self.x)
        self.m.evaluate, self.m.permutes_bytes = self.value, permutes_bytes
        self.f = Functions(self.w, self.a, self.value, vector_bits)
        self.q = Quantizer(self.w, self.a, self.m, self.value, vector_bits)
        self.m.isolated = self._isolated
        self._memo: dict[int, tuple[Expr, Value]] = {}
        self._unrolled: dict[int, Unrolled] = {}
        self._shared: frozenset[str] = frozenset()  # pointers to memory that may also be another operand's
        self.tables = Tables(self.w, self.a, self.x, self.m, self.value)
        self.tiles = TileRegisters(self.m)
        self.halves = Halves(self.m)
        outputs = {o.name for o in program.operands if o.role == "output"}
        self.m.unwritten = _unwritten(program)
        self._written = [b.name for b in program.buffers if b.scope == SHARED or b.name in outputs]

    def module(self) -> str:
        operands = [f"%p{n}" for n in range(len(self.program.operands))]
        for o, pointer in zip(self.program.operands, operands):
            self.x.bases[o.name] = pointer
        self._scratch()
        for stmt in self.program.body:
            self.statement(stmt)
        name = self.program.name
        pointers = [*operands, "%shared", "%local", "%barrier"]
        noalias = ", ".join(f"ptr {p}" if p in self._shared else f"ptr noalias {p}" for p in pointers)
        # Spilled vectors on an unaligned stack would cross cache lines, or not, from process to process.
        width = f'"min-legal-vector-width"="{self.vector_bits}" "prefer-vector-width"="{self.vector_bits}"'
        attributes = f"nounwind alignstack(64) {width}"
        tiles = self.tiles.configure(self.w.text())
        lines = [f"define internal void @{name}.body({noalias}, i64 %tid, i64 %nt) {attributes} {{", "entry:"]
        lines += [*tiles.body, "  ret void", "}", ""]
        lines += [f"define void @{name}(ptr %frame, i64 %tid, i64 %nt) {attributes} {{"]
        for n, pointer in enumerate(pointers):
            lines.append(f"  %f{n} = getelementptr inbounds ptr, ptr %frame, i64 {n}")
            lines.append(f"  {pointer} = load ptr, ptr %f{n}, align 8")
        plain = ", ".join(f"ptr {p}" for p in pointers)
        call = f"  call void @{name}.body({plain}, i64 %tid, i64 %nt)"
        lines += [*tiles.before, call, *tiles.after, "  ret void", "}", "", *tiles.constants]
        constants = [f"{name} = {text}" for text, name in self.tables.constants.items()]
        return "\n".join(lines + constants + sorted(self.w.declarations)) + "\n"

    def _scratch(self) -> None:
        shared, _ = scratch_offsets(self.program, SHARED)
        local, size = scratch_offsets(self.program, LOCAL)
        if local:
            mine = self.w.hoisted(0, f"mul i64 %tid, {size}")
            base = self.w.hoisted(0, f"getelementptr inbounds i8, ptr %local, i64 {mine}")
        for b in self.program.buffers:
            if b.scope == SHARED:
                self.x.bases[b.name] = self.w.hoisted(
                    0, f"getelementptr inbounds i8, ptr %shared, i64 {shared[b.name]}"
                )
            elif b.scope == LOCAL:
                self.x.bases[b.name] = self.w.hoisted(0, f"getelementptr inbounds i8, ptr {base}, i64 {local[b.name]}")
            elif b.scope == REGISTER:
                text = f"alloca [{b.elements} x {stored_type(b.dtype)}], align {ALIGN}"
                self.x.bases[b.name] = name = f'%"{b.name}.r"'
                self.w.scopes[0].top.append(f"  {name} = {text}")

    def statement(self, stmt: Stmt) -> None:
        if not isinstance(stmt, Prefetch) and not (isinstance(stmt, For) and stmt.mark in _WRITTEN_OUT):
            self.halves.flush()
        if isinstance(stmt, For):
            self._loop(stmt)
        elif isinstance(stmt, If):
            self._guard(stmt)
        elif isinstance(stmt, Store):
            self._store(stmt)
        elif isinstance(stmt, Prefetch):
            self.m.prefetch(stmt.buffer, stmt.indices, stmt.level)
        elif isinstance(stmt, Once):
            first = self.w.value("icmp eq i64 %tid, 0")
            label = self.w.open_branch(first)
            self._block(stmt.body)
            self.w.close_branch(label)
        elif isinstance(stmt, Barrier):
            self.w.barrier([self.x.bases[name] for name in self._written])

    def _all(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.statement(stmt)

    def _block(self, body: tuple[Stmt, ...]) -> None:
        """What runs from its begin to its end or not at all: a branch, or a turn of a loop."""
        self._all(body)
        self.halves.flush()

    def _loop(self, stmt: For) -> None:
        if on_tiles(stmt.mark):
            self._memo.clear()
            self.tiles.emit(stmt)
            return
        if stmt.mark in DOT_PRODUCTS:
            self._memo.clear()
            emit_dot(self.m, self.a, self.halves, stmt)
            return
        if stmt.mark == "vectorize":
            if self.m.lanes:
                raise CodegenError(f"{stmt.var} is vectorized inside another vectorized loop")
            self.x.bind(stmt.var, LANE)
            self.m.lane_var, self.m.lanes = stmt.var, stmt.extent
            if stmt.begin:
                raise CodegenError(f"vectorized loop {stmt.var} starts at {stmt.begin}, not 0")
            self._all(stmt.body)
            self.m.lane_var, self.m.lanes = "", 0
        elif stmt.mark == "unroll":
            facts, outside = self._facts(stmt), self.m.unrolled
            if facts.alike:
                self.m.unrolled = [*outside, Turns(stmt.var, stmt.begin, stmt.extent, len(self.w.scopes))]
            waiting = facts.apart and self.q.wait()
            marks = [self.w.mark()]
            for n in range(stmt.begin, stmt.begin + stmt.extent):
                self.x.bind(stmt.var, n)
                self._all(stmt.body)
                marks.append(self.w.mark())
            if facts.chains:
                self.w.interleave(marks)
            if waiting:
                self.q.flush()
            self.m.unrolled = outside
        elif stmt.mark == "parallel":
            self._parallel(stmt)
        else:
            first, last = str(stmt.begin), str(stmt.begin + stmt.extent)
            label, variable = self.w.open_loop(first, innermost=not any(map(_branches, statements(stmt.body))))
            self.x.bind(stmt.var, self.w.in_turn(variable, first, last, self.x.bound(stmt.turn)))
            self._block(stmt.body)
            self.w.close_loop(label, variable, last)
        self.x.release(stmt.var)

    def _facts(self, loop: For) -> Unrolled:
        kept = self._unrolled.get(id(loop))
        if kept is None:
            kept = self._unrolled[id(loop)] = Unrolled.of(loop)  # a loop lives as long as its program
        return kept

    def _parallel(self, stmt: For) -> None:
        """Threads claim iterations until none is left: see `codegen.runtime_claims`."""
        if stmt.extent > MOST_CLAIMED:
            self._fixed(stmt)
            return
        turns, claimed = self.w.open_claims(stmt.extent)
        inside = self.w.open_branch(self.w.value(f"icmp ne i64 {claimed}, 0"))
        here = len(self.w.scopes) - 1
        first = self.w.hoisted(here, f"and i64 {claimed}, {2**32 - 1}")
        last = self.w.hoisted(here, f"lshr i64 {claimed}, 32")
        self._rounds(stmt, here, first, last)
        self.w.close_branch(inside)
        self.w.close_claims(turns, claimed)

    def _fixed(self, stmt: For) -> None:
        """Thread t runs iterations extent * t // threads up to extent * (t + 1) // threads, more than claims number."""
        h = self.w.hoisted
        first = h(0, f"udiv i64 {h(0, f'mul i64 %tid, {stmt.extent}')}, %nt")
        next_thread = h(0, "add i64 %tid, 1")
        last = h(0, f"udiv i64 {h(0, f'mul i64 {next_thread}, {stmt.extent}')}, %nt")
        branch = self.w.open_branch(self.w.value(f"icmp slt i64 {first}, {last}"))
        self._rounds(stmt, 0, first, last)
        self.w.close_branch(branch)

    def _rounds(self, stmt: For, depth: int, first: str, last: str) -> None:
        """Iterations `first` up to `last`, at least one, from the loop's begin on; both are known at that depth."""
        if stmt.begin:
            first, last = (self.w.hoisted(depth, f"add i64 {end}, {stmt.begin}") for end in (first, last))
        label, variable = self.w.open_loop(first)
        self.x.bind(stmt.var, self.w.in_turn(variable, first, last, self.x.bound(stmt.turn)))
        self._block(stmt.body)
        self.w.close_loop(label, variable, last)

    def _guard(self, stmt: If) -> None:
        self.x.forget()
        uniform: list[Value] = []
        masks: list[Value] = []
        for c in stmt.when:
            value = self.m.condition(c)
            if value.const is False:
                return
            if value.const is None:
                (masks if value.lanes else uniform).append(value)
        labels = [self.w.open_branch(v.text) for v in uniform]
        saved = self.m.mask
        for mask in masks:
            self.m.mask = mask if self.m.mask is None else self.a.binary("and", self.m.mask, mask)
        if self.m.mask is None or self.m.mask.const is None:
            self._block(stmt.body)
        self.m.mask = saved
        for label in reversed(labels):
            self.w.close_branch(label)

    def _store(self, stmt: Store) -> None:
        self._memo.clear()
        self.x.forget()
        if stmt.fold is not None:
            self._fold(stmt.targets[0][0], stmt)
            return
        if self.q.store(stmt):
            return
        values = [self.value(v) for v in stmt.values]
        for (buffer, indices), value in zip(stmt.targets, values):
            self.m.store(buffer, indices, value)

    def _fold(self, buffer: Buffer, stmt: Store) -> None:
        """target = target (fold) value; lanes that share one target are folded among themselves first."""
        indices = stmt.targets[0][1]
        e = stmt.values[0]
        shared = False
        if self.m.lanes:
            try:
                shared = self.x.offset(self.x.flat(buffer, indices)).lane == 0
            except PerLane:
                shared = False
        if shared:
            value = self._across_lanes(stmt.fold or "", self.value(e))
            lanes, mask = self.m.lanes, self.m.mask
            self.m.lanes, self.m.mask = 0, None
            total = self.m.load(buffer, indices, (), None)
            self.m.store(buffer, indices, self._combine(stmt.fold or "", total, value))
            self.m.lanes, self.m.mask = lanes, mask
            return
        if stmt.fold == "sum" and isinstance(e, Binary) and e.op == "mul":
            a = self.value(e.a)
            if a.structural and a.const == 0:
                return
            b = self.value(e.b)
            product = self.a.binary("mul", a, b) if (a.structural or b.structural) else None
            if product is not None and product.structural and product.const == 0:
                return
            total = self.m.load(buffer, indices, (), None)
            fused = e.dtype.is_float and (
                product is None or (product.text not in (a.text, b.text) and not _is_one(a, b))
            )
            new = (
                self.a.fma(a, b, total) if fused else self._combine("sum", total, product or self.a.binary("mul", a, b))
            )
            self.m.store(buffer, indices, new)
            return
        value = self.value(e)
        if stmt.fold == "sum" and value.structural and value.const == 0:
            return
        total = self.m.load(buffer, indices, (), None)
        self.m.store(buffer, indices, self._combine(stmt.fold or "", total, value))

    def _combine(self, fold: str, total: Value, value: Value) -> Value:
        if fold == "sum" and value.dtype is not DType.bool:
            return self.a.accumulate(total, value)
        if fold == "largest":
            return self.a.select(self.a.binary("gt", value, total), value, total)
        # The new value first: the test for NaN is made of the first operand, and so does not wait for the total.
        return self.a.binary({"sum": "or", "prod": "mul"}.get(fold, fold), value, total)

    def _across_lanes(self, fold: str, value: Value) -> Value:
        """One value from a vector, by halves; lanes switched off by the guard do not take part."""
        from autotune.tensor.reducer import BUILTIN

        lanes = self.m.lanes
        text = self.a.operand(value, lanes)
        value = Value(text, value.dtype, lanes)
        if self.m.mask is not None:
            identity = BUILTIN[fold](value.dtype).identity[0]
            value = self.a.select(self.m.mask, value, constant(identity.value, value.dtype))
        if fold == "sum" and value.dtype.is_int:
            # LLVM 22 takes our tree over u8 * i8 products for vpdpbusd and then forgets three of its four partial sums.
            kind, element = computed_type(value.dtype, lanes), computed_type(value.dtype)
            symbol = f"@llvm.vector.reduce.add.v{lanes}i{value.dtype.bits}"
            self.w.declare(f"{element} {symbol}({kind})")
            return Value(self.w.value(f"call {element} {symbol}({kind} {value.text})"), value.dtype)
        while lanes > 1:
            half = lanes // 2
            kind = computed_type(value.dtype, lanes)
            parts = []
            for start in (0, half):
                picked = ", ".join(f"i32 {start + n}" for n in range(half))
                parts.append(
                    Value(
                        self.w.value(f"shufflevector {kind} {value.text}, {kind} poison, <{half} x i32> <{picked}>"),
                        value.dtype,
                        half,
                    )
                )
            folded = self._combine(fold, parts[0], parts[1])
            if lanes % 2:
                last = Value(self.w.value(f"extractelement {kind} {value.text}, i64 {lanes - 1}"), value.dtype)
                first = self.w.value(f"extractelement {computed_type(value.dtype, half)} {folded.text}, i64 0")
                joined = self._combine(fold, Value(first, value.dtype), last)
                text = self.w.value(
                    f"insertelement {computed_type(value.dtype, half)} {folded.text}, "
                    f"{computed_type(value.dtype)} {joined.text}, i64 0"
                )
                folded = Value(text, value.dtype, half)
            value, lanes = folded, half
        return Value(self.w.value(f"extractelement {computed_type(value.dtype, 1)} {value.text}, i64 0"), value.dtype)

    def value(self, e: Expr) -> Value:
        """The value of an expression at the current point of the loops."""
        kept = self._memo.get(id(e))
        if kept is not None and not isinstance(e, Const):
            return kept[1]
        new = self._evaluate(e)
        self._memo[id(e)] = (e, new)
        return new

    def _evaluate(self, e: Expr) -> Value:
        if isinstance(e, Const):  # rounded as what is computed: with 16 bits a sixth near a zero loses all
            return constant(e.value, computed(e.dtype))
        if isinstance(e, Load):
            return self.m.load(e.buffer, e.indices, e.when, e.otherwise)
        if isinstance(e, Index):
            return self._index(e)
        if isinstance(e, Binary):
            return self._binary(e)
        if isinstance(e, Unary):
            return self.f.unary(e, self.value(e.a))
        if isinstance(e, Select):
            condition = self.value(e.condition)
            if condition.const is not None:
                return self.value(e.a if condition.const else e.b)
            return self.a.select(condition, self.value(e.a), self.value(e.b))
        if isinstance(e, Cast):
            return self.q.value(e) or self.a.cast(self.value(e.a), e.dtype)
        if isinstance(e, Reinterpret):
            return self.a.same_bits(self.value(e.a), e.a.dtype, e.dtype)
        if isinstance(e, Table):
            return self.tables.value(e)
        if isinstance(e, Lookup):
            return self.tables.lookup(e, self.vector_bits)
        if isinstance(e, Apart):
            read, written = self.x.bases[e.read.name], self.x.bases[e.written.name]
            self._shared |= {read, written}
            return Value(self.w.value(f"icmp ne ptr {read}, {written}"), DType.bool)
        raise CodegenError(f"no code for `{e}`")

    def _isolated(self, scalar: Callable[[], Value]) -> Value:
        """Values memorised while a lane is a constant belong to that lane only."""
        saved, self._memo = self._memo, {}
        value = scalar()
        self._memo = saved
        return value

    def _binary(self, e: Binary) -> Value:
        if e.op == "ge" and isinstance(e.a, Index) and isinstance(e.b, Const):
            return self.m.condition(e.a.value - int(e.b.value))  # folds lanes with constant numbers
        if e.op == LDEXP:
            return self.f.scaled(e, self.value(e.a), self.value(e.b))
        if (centred := self.q.centred(e)) is not None:
            return centred
        if e.op in ("add", "sub") and e.dtype.is_float:
            # Contraction: one rounding instead of two, half the instructions.
            for product, other in ((e.a, e.b), (e.b, e.a)):
                if isinstance(product, Binary) and product.op == "mul" and id(product) not in self._memo:
                    a, b, c = self.value(product.a), self.value(product.b), self.value(other)
                    if a.structural or b.structural or (a.const is not None and b.const is not None):
                        break
                    if e.op == "sub":
                        a, c = (a, self.a.negate(c)) if product is e.a else (self.a.negate(a), c)
                    return self._rounded(self.a.fma(a, b, c), e.dtype)
        a, b = self.value(e.a), self.value(e.b)
        return self._rounded(self.f.power(e, a, b) if e.op == "pow" else self.a.binary(e.op, a, b), e.dtype)

    def _rounded(self, value: Value, dtype: DType) -> Value:
        """f16 and bf16 arithmetic is done in f32 and rounded where it is stored or cast."""
        return value if value.dtype is computed(dtype) else self.a.cast(value, dtype)

    def _index(self, e: Index) -> Value:
        try:
            offset = self.x.offset(e.value)
        except PerLane:
            return self.m.per_lane(lambda: self._index(e))
        if offset.lane:
            return self.m.lane_numbers(offset)
        if not offset.terms:
            return constant(offset.const, DType.i64)
        return Value(self.x.materialise(offset), DType.i64)

    def _opaque_index(self, e: Expr) -> str | int:
        """An index read from memory, or from a table; the same in all lanes, or known in the one that is asked for."""
        if self.m.lanes and self.m.lane_var in variables(e):
            known = self.tables.known(e) if isinstance(e, Table) else None
            if known is None:
                raise PerLane
            return known
        value = self.value(e)
        if value.const is not None:
            return self.w.inline(self.w.value(f"add i64 {int(value.const)}, 0"))
        return self.w.inline(value.text)


def _is_one(a: Value, b: Value) -> bool:
    return any(v.structural and v.const in (1, -1) for v in (a, b))


def _branches(stmt: Stmt) -> bool:
    """Whether a statement becomes a loop or a branch of its own."""
    return isinstance(stmt, (If, Once)) or (isinstance(stmt, For) and stmt.mark not in ("unroll", "vectorize"))


def _unwritten(program: LoopProgram) -> frozenset[str]:
    """Operands whose memory nothing in the kernel writes, not even as that of a result."""
    read = {o.name for o in program.operands if o.role == "input"}
    shared = {e.read.name for s in statements(program.body) for e in expressions(s) if isinstance(e, Apart)}
    return frozenset(read - shared)
