"""Operators on values: LLVM instructions, constant folding, and the corner cases that ONNX fixes.

No fast-math: only contraction to FMA, and `nsz` on sums that start from zero. NaN passes through max and min, integer
division by zero gives zero and never traps.
"""

from __future__ import annotations

import functools
import math

from autotune.codegen.value import (
    Scalar,
    Value,
    computed,
    computed_type,
    constant,
    literal,
    mask_bits,
    mask_constant,
    stored_type,
)
from autotune.codegen.writer import Writer
from autotune.errors import CodegenError
from autotune.tensor.dtype import DType
from autotune.tensor.reducer import highest, lowest

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_UNSIGNED = {d: DType(d.value.replace("i", "u")) for d in DType if d.is_int}
_COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}
_CONVERTED = (DType.f16, DType.bf16, DType.bool)
"""Other dtypes in memory than in registers."""
_INTRINSIC = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven", "abs": "fabs"}


class Arithmetic:
    """Emits scalar and vector arithmetic.

    Args:
        rounds_to_bf16: by the CPU's instruction, which takes subnormal numbers for zero.
    """

    def __init__(self, writer: Writer, *, rounds_to_bf16: bool = False) -> None:
        self.w, self._rounds_to_bf16 = writer, rounds_to_bf16
        self._raw: dict[str, tuple[str, DType, int]] = {}  # by value read from memory: its text there, dtype and lanes

    def operand(self, v: Value, lanes: int) -> str:
        """LLVM operand of `v` widened to `lanes` (0: scalar)."""
        if v.const is not None:
            return literal(v.const, v.dtype, lanes)
        if v.lanes == lanes:
            return v.text
        if v.lanes:
            raise CodegenError(f"a vector of {v.lanes} lanes is used where {lanes or 'a scalar'} is needed")
        known = self.w.known(("splat", v.text, lanes))
        if known is not None:
            return known
        vector, scalar = computed_type(v.dtype, lanes), computed_type(v.dtype)
        first = self.w.once(("insert", v.text, lanes), f"insertelement {vector} poison, {scalar} {v.text}, i64 0")
        return self.w.once(
            ("splat", v.text, lanes),
            f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer",
        )

    def _emit(self, opcode: str, dtype: DType, *values: Value, result: DType | None = None) -> Value:
        lanes = max(v.lanes for v in values)
        kind = computed_type(dtype, lanes)
        text = self.w.value(f"{opcode} {kind} {', '.join(self.operand(v, lanes) for v in values)}")
        return Value(text, result or computed(dtype), lanes)

    def intrinsic(self, name: str, dtype: DType, *values: Value) -> Value:
        """Call `llvm.<name>` on values of one dtype."""
        lanes = max([v.lanes for v in values])
        kind, symbol, declared = _function(name, dtype, lanes, len(values))
        self.w.declare(declared)
        arguments = ", ".join([f"{kind} {self.operand(v, lanes)}" for v in values])
        return Value(self.w.value(f"call {kind} {symbol}({arguments})"), dtype, lanes)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c in one rounding."""
        return self.intrinsic("fma", c.dtype, a, b, c)

    def scalef(self, a: Value, b: Value) -> Value:
        """a * 2**floor(b) of f32 vectors of 4, 8 or 16 lanes with AVX-512: rounded once, denormals and infinity too."""
        lanes = max(a.lanes, b.lanes)
        kind = computed_type(DType.f32, lanes)
        return self._masked("scalef", lanes, (kind, self.operand(a, lanes)), (kind, self.operand(b, lanes)))

    def fraction(self, a: Value) -> Value:
        """a - floor(a) of an f32 vector of 4, 8 or 16 lanes with AVX-512; 0 of infinities."""
        downwards = ("i32", "1")
        return self._masked("reduce", a.lanes, (computed_type(DType.f32, a.lanes), a.text), downwards)

    def _masked(self, name: str, lanes: int, *arguments: tuple[str, str]) -> Value:
        """Call an AVX-512 intrinsic for all lanes, in the current rounding mode."""
        kind = computed_type(DType.f32, lanes)
        given = [*arguments, (kind, "zeroinitializer"), (f"i{max(lanes, 8)}", "-1")]
        if lanes == 16:
            given.append(("i32", "4"))
        symbol = f"@llvm.x86.avx512.mask.{name}.ps.{32 * lanes}"
        self.w.declare(f"{kind} {symbol}({', '.join(kind for kind, _ in given)})")
        return Value(self.w.value(f"call {kind} {symbol}({', '.join(map(' '.join, given))})"), DType.f32, lanes)

    def accumulate(self, total: Value, a: Value) -> Value:
        """total + a, where a total of zero may be of either sign."""
        return self._emit("fadd nsz" if a.dtype.is_float else "add", a.dtype, total, a)

    def negate(self, a: Value) -> Value:
        if a.const is not None:
            return constant(-a.const, a.dtype, a.structural)
        if a.dtype.is_float:
            return self._emit("fneg", a.dtype, a)
        return self._emit("sub", a.dtype, constant(0, a.dtype), a)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """`a op b` of equal dtypes."""
        dtype = a.dtype
        if a.const is not None and b.const is not None:
            folded = _fold(op, a.const, b.const, dtype)
            if folded is not None:
                return constant(folded, DType.bool if op in _COMPARE else dtype, a.structural and b.structural)
        if op == "and" and dtype is DType.bool:
            left, right = mask_bits(a), mask_bits(b)
            if left is not None and right is not None:
                return mask_constant([x and y for x, y in zip(left, right)])
            if (left is not None and b.lanes) or (right is not None and a.lanes):
                return self._both_masks(*((b, left) if left is not None else (a, right or ())))
        simpler = self._structural(op, a, b)
        if simpler is not None:
            return simpler
        if op in _COMPARE:
            return self._compare(op, a, b)
        if op in ("max", "min"):
            return self._extreme(op, a, b)
        if dtype.is_float and op in _FLOAT:
            return self._emit(_FLOAT[op], dtype, a, b)
        if dtype is DType.bool and op == "add":
            return self._emit("or", dtype, a, b)
        if not dtype.is_float and op in _INT:
            return self._emit(_INT[op], dtype, a, b)
        if op in ("shl", "shr"):
            return self._shift(op, a, b)
        if dtype.is_float and op in ("truncdiv", "floordiv", "floormod"):
            return self._float_division(op, a, b)
        if op in ("div", "truncdiv", "floordiv", "floormod"):
            return self._integer_division(op, a, b)
        raise CodegenError(f"operator {op} is not defined for {dtype}")

    def _both_masks(self, mask: Value, known: tuple[bool, ...]) -> Value:
        """`mask` in the lanes that are `known` to be on.

        As integers: with `and <N x i1> %mask, <constant>`, LLVM 22 loads the half that is off without a mask on AVX2.
        """
        n = len(known)
        bits = self.w.value(f"bitcast <{n} x i1> {mask.text} to i{n}")
        kept = self.w.value(f"and i{n} {bits}, {sum(1 << lane for lane, on in enumerate(known) if on)}")
        return Value(self.w.value(f"bitcast i{n} {kept} to <{n} x i1>"), DType.bool, n)

    def _structural(self, op: str, a: Value, b: Value) -> Value | None:
        """Zeros and ones of small constant matrices vanish."""
        for x, y in ((a, b), (b, a)):
            if x.structural and op == "mul":
                if x.const == 0:
                    return x
                if x.const == 1:
                    return y
                if x.const == -1:
                    return self.negate(y)
            if x.structural and x.const == 0 and op == "add":
                return y
        return a if b.structural and b.const == 0 and op == "sub" else None

    def _compare(self, op: str, a: Value, b: Value) -> Value:
        if a.dtype.is_float:
            code = f"fcmp {'une' if op == 'ne' else 'o' + op}"
        elif op in ("eq", "ne") or a.dtype is DType.bool:
            code = f"icmp {op if op in ('eq', 'ne') else 'u' + op}"
        else:
            code = f"icmp {'s' if a.dtype.is_signed else 'u'}{op}"
        return self._emit(code, a.dtype, a, b, result=DType.bool)

    def _extreme(self, op: str, a: Value, b: Value) -> Value:
        if not a.dtype.is_float:
            if a.dtype is DType.bool:
                return self._emit("or" if op == "max" else "and", a.dtype, a, b)
            return self.intrinsic(("s" if a.dtype.is_signed else "u") + op, a.dtype, a, b)
        if a.const is not None:
            a, b = b, a
        if b.const is not None and not math.isnan(b.const):
            # One instruction: maxps returns its second operand when either is NaN.
            return self.select(self._compare("gt" if op == "max" else "lt", b, a), b, a)
        # NaN in either: a > b picks a, an unordered b is picked by the test on b itself.
        better = self._emit("fcmp ogt" if op == "max" else "fcmp olt", a.dtype, a, b, result=DType.bool)
        first = self.select(better, a, b)
        nan = self._emit("fcmp uno", a.dtype, a, a, result=DType.bool)
        return self.select(nan, a, first)

    def integer_power(self, a: Value, b: Value) -> Value:
        """a ** b modulo 2 ** width, by squares; with a negative exponent the quotient rounded to zero."""
        dtype = a.dtype
        zero, one = constant(0, dtype), constant(1, dtype)
        if b.const is not None and b.const < 0:
            positive = zero
            bits = 0
        else:
            positive = one
            bits = dtype.bits - dtype.is_signed if b.const is None else int(b.const).bit_length()
        square = a
        for n in range(bits):
            if b.const is None:
                bit = self.binary("and", self.binary("shr", b, constant(n, dtype)), one)
                positive = self.binary("mul", positive, self.select(self.binary("ne", bit, zero), square, one))
            elif int(b.const) >> n & 1:
                positive = square if positive.const == 1 else self.binary("mul", positive, square)
            if n + 1 < bits:
                square = self.binary("mul", square, square)
        if not dtype.is_signed or (b.const is not None and b.const >= 0):
            return positive
        odd = self.binary("ne", self.binary("and", b, one), zero)
        unit = self.select(odd, a, one)  # 1 / a for a of 1 or -1
        is_unit = self._either(self.binary("eq", a, one), self.binary("eq", a, constant(-1, dtype)))
        return self.select(self.binary("lt", b, zero), self.select(is_unit, unit, zero), positive)

    def _shift(self, op: str, a: Value, b: Value) -> Value:
        """Shifts by the width or more leave nothing, or only the sign."""
        dtype = a.dtype
        widest = constant(dtype.bits - 1, dtype)
        signed = op == "shr" and dtype.is_signed
        code = "shl" if op == "shl" else "ashr" if signed else "lshr"
        if b.const is not None and 0 <= b.const < dtype.bits:
            return self._emit(code, dtype, a, b)
        kind = _UNSIGNED[dtype]
        amount = constant(b.const, kind) if b.const is not None else Value(b.text, kind, b.lanes)
        far = self.binary("gt", amount, constant(dtype.bits - 1, kind))
        near = self._emit(code, dtype, a, self.select(far, widest, b))
        return near if signed else self.select(far, constant(0, dtype), near)

    def _float_division(self, op: str, a: Value, b: Value) -> Value:
        """As NumPy: the remainder is exact, and the quotient follows from it."""
        if op == "truncdiv":
            return self.intrinsic("trunc", a.dtype, self.binary("div", a, b))
        zero = constant(0.0, a.dtype)
        rest = self._emit("frem", a.dtype, a, b)
        signs = self.binary("xor", self.binary("lt", rest, zero), self.binary("lt", b, zero))
        off = self.binary("and", self.binary("ne", rest, zero), signs)
        rest = self.select(off, self.binary("add", rest, b), rest)
        if op == "floormod":
            return rest
        exact = self.intrinsic("roundeven", a.dtype, self.binary("div", self.binary("sub", a, rest), b))
        return self.select(self.binary("eq", b, zero), self.binary("div", a, b), exact)

    def _integer_division(self, op: str, a: Value, b: Value) -> Value:
        dtype = a.dtype
        zero, one = constant(0, dtype), constant(1, dtype)
        by_zero = self.binary("eq", b, zero)
        if not dtype.is_signed:
            safe = self.select(by_zero, one, b)
            out = self._emit("urem" if op == "floormod" else "udiv", dtype, a, safe)
            return self.select(by_zero, zero, out)
        minus = self.binary("eq", b, constant(-1, dtype))
        safe = self.select(self._either(by_zero, minus), one, b)
        quotient = self.select(minus, self.negate(a), self._emit("sdiv", dtype, a, safe))
        if op in ("div", "truncdiv"):
            return self.select(by_zero, zero, quotient)
        rest = self.binary("sub", a, self.binary("mul", quotient, b))
        signs = self.binary("lt", self.binary("xor", rest, b), zero)
        off = self._both(self.binary("ne", rest, zero), signs)
        if op == "floormod":
            out = self.select(off, self.binary("add", rest, b), rest)
        else:
            out = self.select(off, self.binary("sub", quotient, one), quotient)
        return self.select(by_zero, zero, out)

    def _either(self, a: Value, b: Value) -> Value:
        return self.binary("or", a, b)

    def _both(self, a: Value, b: Value) -> Value:
        return self.binary("and", a, b)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """`a` where the condition holds, else `b`."""
        if condition.const is not None:
            return a if condition.const else b
        lanes = max(condition.lanes, a.lanes, b.lanes)
        kind = computed_type(a.dtype, lanes)
        test = f"i1 {condition.text}" if not condition.lanes else f"<{lanes} x i1> {condition.text}"
        text = self.w.value(f"select {test}, {kind} {self.operand(a, lanes)}, {kind} {self.operand(b, lanes)}")
        return Value(text, a.dtype, lanes)

    def unary(self, op: str, a: Value) -> Value | None:
        """A function that one instruction or LLVM intrinsic computes; None for others."""
        if op == "neg":
            return self.negate(a)
        if op == "not":
            ones = constant(True, DType.bool) if a.dtype is DType.bool else constant(-1, a.dtype)
            return self.binary("xor", a, ones)
        if op == "isnan":
            return self._emit("fcmp uno", a.dtype, a, a, result=DType.bool)
        if op == "isinf":
            return self.binary("eq", self.intrinsic("fabs", a.dtype, a), constant(math.inf, a.dtype))
        if a.dtype.is_float and op in _INTRINSIC:
            return self.intrinsic(_INTRINSIC[op], a.dtype, a)
        if op == "abs":
            return a if not a.dtype.is_signed else self.binary("max", a, self.negate(a))
        return a if op in ("floor", "ceil", "round") else None

    def cast(self, a: Value, dtype: DType) -> Value:
        """Conversion as NumPy does it; floats saturate when they become integers."""
        to = computed(dtype)
        if a.const is not None and not (isinstance(a.const, float) and not math.isfinite(a.const)):
            if isinstance(a.const, float) and to.is_int:
                return constant(max(int(lowest(to).value), min(int(highest(to).value), int(a.const))), dtype)
            return constant(bool(a.const) if dtype is DType.bool else a.const if to.is_float else int(a.const), dtype)
        if dtype is DType.bool:
            return self.binary("ne", a, constant(0, a.dtype))
        out = a if a.dtype is to else self._convert(a, to)
        if dtype is to:
            return out
        stored = self.to_storage(out, dtype)
        return self.from_storage(stored.text, dtype, stored.lanes)

    def _convert(self, a: Value, to: DType) -> Value:
        lanes = a.lanes
        source, goal = computed_type(a.dtype, lanes), computed_type(to, lanes)
        text = self.operand(a, lanes)
        if a.dtype.is_float and to.is_float:
            code = "fpext" if to is DType.f64 else "fptrunc"
        elif a.dtype.is_float and lanes:
            return self._saturated(a, to)
        elif a.dtype.is_float:
            kind = "s" if to.is_signed else "u"
            symbol = f"@llvm.fpto{kind}i.sat.i{to.bits}.{'f64' if a.dtype is DType.f64 else 'f32'}"
            self.w.declare(f"{goal} {symbol}({source})")
            return Value(self.w.value(f"call {goal} {symbol}({source} {text})"), to, lanes)
        elif to.is_float:
            code = "sitofp" if a.dtype.is_signed and a.dtype is not DType.bool else "uitofp"
        else:
            from_bits = 1 if a.dtype is DType.bool else a.dtype.bits
            if from_bits == to.bits:
                return Value(text, to, lanes, a.const)
            widen = "sext" if a.dtype.is_signed and a.dtype is not DType.bool else "zext"
            code = "trunc" if from_bits > to.bits else widen
        return Value(self.w.value(f"{code} {source} {text} to {goal}"), to, lanes)

    def _saturated(self, a: Value, to: DType) -> Value:
        """Lanes of floats as integers: NaN is 0. LLVM makes the intrinsic of vectors from scalar instructions."""
        low, high, zero = lowest(to), highest(to), constant(0.0, a.dtype)
        if to.bits < 32:  # the ends are floats: move what is beyond them there, and what follows is exact
            ends = [constant(float(end.value), a.dtype) for end in (low, high)]
            a = self.select(self._compare("eq", a, a), a, zero)
            a = self.select(self._compare("gt", a, ends[0]), a, ends[0])
            a = self.select(self._compare("lt", a, ends[1]), a, ends[1])
            return self._convert(self._float_to_int(a, DType.i32), to)
        limit = constant(float(int(high.value) + 1), a.dtype)
        least = constant(float(low.value), a.dtype)
        inside = self._both(self._compare("ge", a, least), self._compare("lt", a, limit))
        found = self._float_to_int(self.select(inside, a, zero), to)
        found = self.select(self._compare("ge", a, limit), constant(int(high.value), to), found)
        return self.select(self._compare("lt", a, least), constant(int(low.value), to), found)

    def _float_to_int(self, a: Value, to: DType) -> Value:
        """Of numbers that fit."""
        code = "fptosi" if to.is_signed else "fptoui"
        kinds = computed_type(a.dtype, a.lanes), computed_type(to, a.lanes)
        return Value(self.w.value(f"{code} {kinds[0]} {self.operand(a, a.lanes)} to {kinds[1]}"), to, a.lanes)

    def same_bits(self, a: Value, source: DType, dtype: DType) -> Value:
        """The bits of an element of `source` as an element of `dtype`, also where these are computed in another."""
        if computed(source) is source and computed(dtype) is dtype and DType.bool not in (source, dtype):
            return self.reinterpret(a, dtype)
        stored = self.to_storage(Value(self.operand(a, a.lanes), a.dtype, a.lanes), source)
        kinds = [stored_type(d, a.lanes) for d in (source, dtype)]
        text = stored.text if kinds[0] == kinds[1] else self.w.value(f"bitcast {kinds[0]} {stored.text} to {kinds[1]}")
        return self.from_storage(text, dtype, a.lanes)

    def reinterpret(self, a: Value, dtype: DType) -> Value:
        goal = computed_type(dtype, a.lanes)
        text = self.w.value(f"bitcast {computed_type(a.dtype, a.lanes)} {self.operand(a, a.lanes)} to {goal}")
        return Value(text, dtype, a.lanes)

    def to_storage(self, a: Value, dtype: DType, lanes: int | None = None) -> Value:
        """The value as it lies in memory: f16 and bf16 rounded to nearest even, bool as a byte."""
        n = a.lanes if lanes is None else lanes
        raw = self._raw.get(a.text)
        if raw is not None and raw[1:] == (dtype, n):
            return Value(raw[0], dtype, n)
        text = self.operand(a, n)
        if dtype not in _CONVERTED:
            return Value(text, dtype, n)
        v = f"<{n} x " if n else ""
        close = ">" if n else ""
        if dtype is DType.f16:
            return Value(self.w.value(f"fptrunc {v}float{close} {text} to {v}half{close}"), dtype, n)
        if dtype is DType.bool:
            return Value(self.w.value(f"zext {v}i1{close} {text} to {v}i8{close}"), dtype, n)
        if self._rounds_to_bf16:
            narrow = self.w.value(f"fptrunc {v}float{close} {text} to {v}bfloat{close}")
            return Value(self.w.value(f"bitcast {v}bfloat{close} {narrow} to {v}i16{close}"), dtype, n)
        f32 = Value(text, DType.f32, n)
        bits = self.reinterpret(f32, DType.u32)
        low = self.binary("and", self.binary("shr", bits, constant(16, DType.u32)), constant(1, DType.u32))
        rounded = self.binary("add", bits, self.binary("add", low, constant(0x7FFF, DType.u32)))
        quiet = self.binary("or", bits, constant(0x400000, DType.u32))
        nan = self.binary("ne", f32, f32)
        kept = self.binary("shr", self.select(nan, quiet, rounded), constant(16, DType.u32))
        return Value(self.w.value(f"trunc {v}i32{close} {self.operand(kept, n)} to {v}i16{close}"), dtype, n)

    def from_storage(self, text: str, dtype: DType, lanes: int) -> Value:
        """A value from memory in the dtype computed in. Stored as it is, it goes back unconverted."""
        if dtype not in _CONVERTED:
            return Value(text, dtype, lanes)
        value = self._from_storage(text, dtype, lanes)
        if value.text != text:
            self._raw[value.text] = (text, dtype, lanes)
        return value

    def _from_storage(self, text: str, dtype: DType, lanes: int) -> Value:
        v = f"<{lanes} x " if lanes else ""
        close = ">" if lanes else ""
        if dtype is DType.f16:
            return Value(self.w.value(f"fpext {v}half{close} {text} to {v}float{close}"), DType.f32, lanes)
        if dtype is DType.bool:
            return Value(self.w.value(f"trunc {v}i8{close} {text} to {v}i1{close}"), dtype, lanes)
        wide = Value(self.w.value(f"zext {v}i16{close} {text} to {v}i32{close}"), DType.u32, lanes)
        return self.reinterpret(self.binary("shl", wide, constant(16, DType.u32)), DType.f32)


@functools.cache
def _function(name: str, dtype: DType, lanes: int, count: int) -> tuple[str, str, str]:
    """The type, symbol and declaration of an intrinsic on `count` values of one dtype."""
    kind = computed_type(dtype, lanes)
    base = {DType.f32: "f32", DType.f64: "f64"}.get(dtype) or f"i{dtype.bits}"
    symbol = f"@llvm.{name}.{f'v{lanes}' if lanes else ''}{base}"
    return kind, symbol, f"{kind} {symbol}({', '.join([kind] * count)})"


def _fold(op: str, a: Scalar, b: Scalar, dtype: DType) -> Scalar | None:
    """The operation on constants; None where it is left to run time."""
    if op in ("lt", "le", "gt", "ge", "eq", "ne"):
        return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}[op]
    if op in ("add", "sub", "mul"):
        return a + b if op == "add" else a - b if op == "sub" else a * b
    if dtype is DType.bool and op in ("and", "or", "xor"):
        return bool(a and b) if op == "and" else bool(a or b) if op == "or" else bool(a) != bool(b)
    if not dtype.is_float and op in ("floordiv", "floormod") and b:
        return int(a) // int(b) if op == "floordiv" else int(a) % int(b)
    return None
