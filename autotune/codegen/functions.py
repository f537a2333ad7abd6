"""Functions of numbers in generated code: an instruction, arithmetic in vectors, or the C library lane by lane."""

from __future__ import annotations

from collections.abc import Callable

from autotune.codegen.arithmetic import Arithmetic
from autotune.codegen.polynomials import FAR, FRACTION, exp2_of_fraction, expand, scaled
from autotune.codegen.power import power
from autotune.codegen.value import Value, computed_type, constant
from autotune.codegen.writer import Writer
from autotune.errors import CodegenError
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Expr, Unary


class Functions:
    """Emits calls of functions.

    Args:
        writer: where instructions go.
        arithmetic: what emits them.
        evaluate: the value of an expression at the current point of the loops.
        vector_bits: width of the target's vectors.
    """

    def __init__(
        self, writer: Writer, arithmetic: Arithmetic, evaluate: Callable[[Expr], Value], vector_bits: int
    ) -> None:
        self.w, self.a, self.evaluate, self.vector_bits = writer, arithmetic, evaluate, vector_bits
        self._expanded: dict[tuple[int, bool], tuple[Expr, Expr | None]] = {}

    def _expansion(self, e: Expr, make: Callable[[], Expr | None], special: bool = False) -> Expr | None:
        """What `e` is replaced by, made once: values are remembered by the identity of expressions."""
        key = (id(e), special)
        if key not in self._expanded:
            self._expanded[key] = (e, make())
        return self._expanded[key][1]

    def _scales(self, lanes: int) -> bool:
        """Whether AVX-512 scales vectors of so many lanes by powers of two, and splits off fractions."""
        return self.vector_bits == 512 and lanes in (4, 8, 16)

    def unary(self, e: Unary, a: Value) -> Value:
        """`e` of the value `a`; f16 and bf16 are computed in f32."""
        if e.op == FRACTION:
            return self.a.fraction(a)
        direct = self.a.unary(e.op, a)
        if direct is not None:
            return direct
        if e.op == "exp2" and a.dtype is DType.f32 and self._scales(a.lanes):
            form = self._expansion(e, lambda: exp2_of_fraction(_in(e.a, a.dtype)), special=True)
            assert form is not None
            return self.evaluate(form)
        form = self._expansion(e, lambda: expand(e.op, _in(e.a, a.dtype)))
        if form is None:
            return self.library(e.op, a)
        value = self.evaluate(form)
        return self._near(e.op, a, value) if e.op in FAR and a.dtype is DType.f32 else value

    def _near(self, op: str, a: Value, value: Value) -> Value:
        """`value` where every lane of `a` is near enough to zero for it, else what the library says."""
        beyond = self.a.binary("gt", self.a.intrinsic("fabs", a.dtype, a), constant(FAR[op], a.dtype))
        lanes, kind = beyond.lanes, computed_type(a.dtype, a.lanes)
        text = beyond.text
        if lanes:
            bits = self.w.value(f"bitcast <{lanes} x i1> {text} to i{lanes}")
            text = self.w.value(f"icmp ne i{lanes} {bits}, 0")
        before = self.w.block
        label = self.w.open_branch(self.w.value(f"freeze i1 {text}"))
        far = self.library(op, a)
        inside = self.w.block
        self.w.close_branch(label)
        found = self.w.value(f"phi {kind} [ {self.a.operand(value, a.lanes)}, %{before} ], [ {far.text}, %{inside} ]")
        return Value(found, a.dtype, a.lanes)

    def power(self, e: Binary, a: Value, b: Value) -> Value:
        """a ** b: products and roots for integers and the usual constant exponents."""
        if not a.dtype.is_float:
            return self.a.integer_power(a, b)
        if b.const == 0.5:
            return self.a.intrinsic("sqrt", a.dtype, a)  # as NumPy does, so -inf gives NaN
        if b.const in (1, 2, 3):
            square = a if b.const == 1 else self.a.binary("mul", a, a)
            return square if b.const != 3 else self.a.binary("mul", square, a)
        if b.const == -1:
            return self.a.binary("div", constant(1.0, a.dtype), a)
        if a.dtype is not DType.f32:
            return self.library("pow", a, b)
        form = self._expansion(e, lambda: power(_in(e.a, DType.f32), _in(e.b, DType.f32)))
        assert form is not None
        return self.evaluate(form)

    def scaled(self, e: Binary, a: Value, b: Value) -> Value:
        """a * 2**b: one instruction of AVX-512, or the integer arithmetic that does the same."""
        if self._scales(max(a.lanes, b.lanes)):
            return self.a.scalef(a, b)
        form = self._expansion(e, lambda: scaled(e.a, e.b))
        assert form is not None
        return self.evaluate(form)

    def library(self, op: str, *arguments: Value) -> Value:
        """A call of the C library per lane."""
        dtype = arguments[0].dtype
        if dtype not in (DType.f32, DType.f64):
            raise CodegenError(f"{op} is not defined for {dtype}")
        kind = computed_type(dtype)
        symbol = f"@{op}{'f' if dtype is DType.f32 else ''}"
        self.w.declare(f"{kind} {symbol}({', '.join([kind] * len(arguments))})")
        lanes = max(v.lanes for v in arguments)
        texts = [self.a.operand(v, lanes) for v in arguments]
        if not lanes:
            listed = ", ".join(f"{kind} {t}" for t in texts)
            return Value(self.w.value(f"call {kind} {symbol}({listed})"), dtype)
        vector = computed_type(dtype, lanes)
        out = "poison"
        for n in range(lanes):
            parts = [self.w.value(f"extractelement {vector} {t}, i64 {n}") for t in texts]
            y = self.w.value(f"call {kind} {symbol}({', '.join(f'{kind} {x}' for x in parts)})")
            out = self.w.value(f"insertelement {vector} {out}, {kind} {y}, i64 {n}")
        return Value(out, dtype, lanes)


def _in(e: Expr, dtype: DType) -> Expr:
    return e if e.dtype is dtype else Cast(e, dtype)
