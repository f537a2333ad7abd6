"""Quasi-affine integers: constant + sum of coefficient * term, the form in which indices are analysed.

A term is a variable, a floor division or remainder by a positive constant, or an opaque expression (an indirect
read). The constructors simplify with the ranges of the variables, which is all the index algebra that blocked
layouts, splits and fusions need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Union

from autotune.errors import LoweringError
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr, Table, Unary, Var, binary, cast

Range = tuple[int, int]
"""Inclusive bounds."""
Ranges = Mapping[str, Range]
UNBOUNDED: Range = (-(2**62), 2**62)


class Linear:
    """An immutable quasi-affine integer."""

    __slots__ = ("_hash", "const", "terms")

    def __init__(self, const: int = 0, terms: dict[Term, int] | None = None) -> None:
        self.const = const
        self.terms: dict[Term, int] = {t: c for t, c in terms.items() if c} if terms else {}
        self._hash: int | None = None

    @staticmethod
    def var(name: str) -> Linear:
        return Linear._of(0, {name: 1})

    @staticmethod
    def _of(const: int, terms: dict[Term, int]) -> Linear:
        """With terms as they are: none has the coefficient 0, and nobody changes them."""
        made = Linear.__new__(Linear)
        made.const, made.terms, made._hash = const, terms, None
        return made

    @staticmethod
    def combined(parts: Iterable[tuple[Linear, int]]) -> Linear:
        """The sum of forms, each times a number."""
        const, terms = 0, dict[Term, int]()
        for form, factor in parts:
            const += form.const * factor
            for term, c in form.terms.items() if factor else ():
                total = terms.get(term, 0) + c * factor
                if total:
                    terms[term] = total
                else:
                    del terms[term]
        return Linear._of(const, terms)

    @property
    def is_const(self) -> bool:
        return not self.terms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Linear) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.const, frozenset(self.terms.items())))
        return self._hash

    def __add__(self, other: Linear | int) -> Linear:
        if isinstance(other, int):
            return Linear._of(self.const + other, self.terms)
        const = self.const + other.const
        if not self.terms or not other.terms:
            return Linear._of(const, self.terms or other.terms)
        terms = dict(self.terms)
        for term, c in other.terms.items():
            total = terms.get(term, 0) + c
            if total:
                terms[term] = total
            else:
                del terms[term]
        return Linear._of(const, terms)

    def __sub__(self, other: Linear | int) -> Linear:
        return self + (other * -1 if isinstance(other, Linear) else -other)

    def __mul__(self, factor: int) -> Linear:
        if factor == 1:
            return self
        return Linear._of(self.const * factor, {t: c * factor for t, c in self.terms.items()}) if factor else Linear()

    def range(self, ranges: Ranges) -> Range:
        """Inclusive bounds of the value."""
        lo = hi = self.const
        for term, c in self.terms.items():
            a, b = ranges.get(term, UNBOUNDED) if type(term) is str else _term_range(term, ranges)
            lo, hi = (lo + c * a, hi + c * b) if c > 0 else (lo + c * b, hi + c * a)
        return lo, hi

    def steps(self, ranges: Ranges) -> list[tuple[int, int]]:
        """Per term, how far a turn of it moves the value, and how many turns there are; short steps first."""
        found = []
        for term, c in self.terms.items():
            low, high = ranges.get(term, UNBOUNDED) if type(term) is str else _term_range(term, ranges)
            found.append((abs(c), high - low + 1))
        return sorted(found)

    def floordiv(self, divisor: int, ranges: Ranges) -> Linear:
        """`self // divisor`, simplified."""
        quotient, rest = self._split(divisor)
        lo, hi = rest.range(ranges)
        if lo // divisor == hi // divisor:
            return quotient + lo // divisor
        for c in rest.terms.values():
            g = math.gcd(c, divisor)
            if 1 < g:
                coarse, fine = rest._split(g)
                a, b = fine.range(ranges)
                if 0 <= a and b < g:
                    return quotient + (coarse.floordiv(divisor // g, ranges) if g < divisor else coarse)
        if len(rest.terms) == 1 and rest.const == 0:
            ((term, c),) = rest.terms.items()
            if c == 1 and isinstance(term, Div):
                return quotient + Linear(0, {Div(term.arg, term.divisor * divisor): 1})
        return quotient + Linear(0, {Div(rest, divisor): 1})

    def floormod(self, divisor: int, ranges: Ranges) -> Linear:
        """`self % divisor`, simplified."""
        _, rest = self._split(divisor)
        lo, hi = rest.range(ranges)
        if lo // divisor == hi // divisor:
            return rest - lo // divisor * divisor
        for c in rest.terms.values():
            g = math.gcd(c, divisor)
            if 1 < g < divisor:
                coarse, fine = rest._split(g)
                a, b = fine.range(ranges)
                if 0 <= a and b < g:
                    return coarse.floormod(divisor // g, ranges) * g + fine
        return Linear(0, {Mod(rest, divisor): 1})

    def joined(self) -> Linear:
        """The same value with every `d * (x // d) + x % d` put together again as x (a fused loop over whole rows)."""
        total = self
        for term, c in self.terms.items():
            if isinstance(term, Mod) and term in total.terms:
                quotient = term.arg.floordiv(term.divisor, {}) * (c * term.divisor)
                candidate = total - Linear(0, {term: c}) - quotient + term.arg * c
                if candidate._divisions() < total._divisions():
                    return candidate.joined()
        return total

    def _divisions(self) -> int:
        return sum(1 + t.arg._divisions() for t in self.terms if isinstance(t, (Div, Mod)))

    def _split(self, divisor: int) -> tuple[Linear, Linear]:
        """(quotient, rest) with self = divisor * quotient + rest, the rest's constant in [0, divisor)."""
        whole = {t: c // divisor for t, c in self.terms.items() if c % divisor == 0}
        rest = {t: c for t, c in self.terms.items() if c % divisor}
        return Linear._of(self.const // divisor, whole), Linear._of(self.const % divisor, rest)

    def substitute(self, values: Mapping[str, Linear], ranges: Ranges) -> Linear:
        """Replace variables, simplifying again under `ranges` (those of the new variables)."""
        for term in self.terms:
            if type(term) is not str or term in values:
                break
        else:
            return self
        out = Linear(self.const)
        for term, c in self.terms.items():
            if isinstance(term, str):
                out = out + (values[term] * c if term in values else Linear._of(0, {term: c}))
            elif isinstance(term, Div):
                out = out + term.arg.substitute(values, ranges).floordiv(term.divisor, ranges) * c
            elif isinstance(term, Mod):
                out = out + term.arg.substitute(values, ranges).floormod(term.divisor, ranges) * c
            else:
                out = out + Linear(0, {term: c})
        return out

    def variables(self) -> Iterator[str]:
        """Names of the variables, those inside divisions too."""
        for term in self.terms:
            if type(term) is str:
                yield term
            elif isinstance(term, (Div, Mod)):
                yield from term.arg.variables()

    @property
    def is_opaque(self) -> bool:
        """Some part, perhaps inside a division, is an expression read from memory."""
        for term in self.terms:
            if type(term) is not str and (not isinstance(term, (Div, Mod)) or term.arg.is_opaque):
                return True
        return False

    def opaque(self) -> Iterator[Expr]:
        """The parts that are expressions, those inside divisions too."""
        for term in self.terms:
            if isinstance(term, (Div, Mod)):
                yield from term.arg.opaque()
            elif not isinstance(term, str):
                yield term

    def map_opaque(self, fn: Callable[[Expr], Expr]) -> Linear:
        """Replace the opaque parts, those inside divisions too."""
        if not self.is_opaque:
            return self
        out = Linear(self.const)
        for term, c in self.terms.items():
            new: Term = term
            if isinstance(term, Div):
                new = Div(term.arg.map_opaque(fn), term.divisor)
            elif isinstance(term, Mod):
                new = Mod(term.arg.map_opaque(fn), term.divisor)
            elif not isinstance(term, str):
                new = fn(term)
            out = out + Linear(0, {new: c})
        return out

    def __str__(self) -> str:
        parts: list[str] = []
        for term, c in sorted(self.terms.items(), key=lambda item: str(item[0])):
            text = f"{'-' if c == -1 else '' if c == 1 else f'{c}*'}{term}"
            parts.append(text if not parts else (f"- {text[1:]}" if text[0] == "-" else f"+ {text}"))
        if self.const or not parts:
            parts.append(str(self.const) if not parts else f"{'-' if self.const < 0 else '+'} {abs(self.const)}")
        return " ".join(parts)

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Div:
    arg: Linear
    divisor: int

    def __str__(self) -> str:
        return f"({self.arg})//{self.divisor}"


@dataclass(frozen=True, slots=True)
class Mod:
    arg: Linear
    divisor: int

    def __str__(self) -> str:
        return f"({self.arg})%{self.divisor}"


Term = Union[str, Div, Mod, Expr]


def _term_range(term: Term, ranges: Ranges) -> Range:
    if isinstance(term, str):
        return ranges.get(term, UNBOUNDED)
    if isinstance(term, Div):
        lo, hi = term.arg.range(ranges)
        return lo // term.divisor, hi // term.divisor
    if isinstance(term, Mod):
        lo, hi = term.arg.range(ranges)
        same = lo // term.divisor == hi // term.divisor
        return (lo % term.divisor, hi % term.divisor) if same else (0, term.divisor - 1)
    return _clamped(term) or UNBOUNDED


def clamp(e: Expr, hi: int) -> Expr:
    """`e` kept in 0..hi: what makes an index that was read from memory safe."""
    return binary("min", binary("max", e, 0), hi)


def low_bits(e: Expr, extent: int) -> Expr:
    """What is left of an unsigned integer modulo a power of two, as an index below it: no comparison."""
    return cast(DType.i64, binary("and", e, Const(extent - 1, e.dtype)))


def _clamped(e: Expr) -> Range | None:
    """The bounds of an expression that `clamp` or `low_bits` made, of constants, or of narrow integers."""
    if isinstance(e, Cast) and e.a.dtype in (DType.u8, DType.u16):
        return 0, 2**e.a.dtype.bits - 1
    if isinstance(e, Cast) and isinstance(e.a, Binary) and e.a.op == "and" and isinstance(e.a.b, Const):
        return (0, int(e.a.b.value)) if e.a.b.value >= 0 else None
    if isinstance(e, Table) and e.values:
        return int(min(e.values)), int(max(e.values))
    if not (isinstance(e, Binary) and e.op == "min" and isinstance(e.b, Const)):
        return None
    inner = e.a
    if not (isinstance(inner, Binary) and inner.op == "max" and isinstance(inner.b, Const)):
        return None
    return int(inner.b.value), int(e.b.value)


def to_linear(e: Expr, ranges: Ranges, values: Mapping[str, Linear] | None = None) -> Linear:
    """The quasi-affine form of an i64 expression; what is not affine becomes an opaque term.

    Args:
        e: an expression of dtype i64.
        ranges: inclusive ranges of the variables of the result.
        values: what to put in place of variables (an axis as a function of loops).
    """
    if isinstance(e, Const):
        return Linear(int(e.value))
    if isinstance(e, Var):
        return values[e.name] if values and e.name in values else Linear.var(e.name)
    if isinstance(e, Unary) and e.op == "neg":
        return to_linear(e.a, ranges, values) * -1
    if isinstance(e, Binary) and e.op in ("add", "sub", "mul", "floordiv", "floormod"):
        a, b = to_linear(e.a, ranges, values), to_linear(e.b, ranges, values)
        if e.op == "add":
            return a + b
        if e.op == "sub":
            return a - b
        if e.op == "mul" and (a.is_const or b.is_const):
            return b * a.const if a.is_const else a * b.const
        if e.op == "floordiv" and b.is_const and b.const > 0:
            return a.floordiv(b.const, ranges)
        if e.op == "floormod" and b.is_const and b.const > 0:
            return a.floormod(b.const, ranges)
    if e.dtype is not DType.i64 or (isinstance(e, Cast) and e.a.dtype is DType.i64):
        raise LoweringError(f"`{e}` is {e.dtype}, an index must be i64")
    return Linear(0, {e: 1})


def undivided(c: Linear) -> Linear:
    """A form that is >= 0 exactly where `c` is, without the division when that is all of c: x//4 - 1 --> x - 4."""
    if len(c.terms) != 1:
        return c
    ((term, k),) = c.terms.items()
    if not isinstance(term, Div):
        return c
    if k > 0:  # the quotient is at least so much
        return undivided(term.arg - -(c.const // k) * term.divisor)
    return undivided((term.arg * -1) + ((c.const // -k + 1) * term.divisor - 1))


def conjunction(e: Expr) -> Iterator[Expr]:
    """The parts of a condition joined by `and`."""
    if isinstance(e, Binary) and e.op == "and" and e.dtype is DType.bool:
        yield from conjunction(e.a)
        yield from conjunction(e.b)
    else:
        yield e


def nonnegatives(e: Expr, ranges: Ranges, values: Mapping[str, Linear] | None = None) -> list[Linear] | None:
    """Affine forms that are all >= 0 exactly where comparison `e` holds; None when it is not affine."""
    if not isinstance(e, Binary) or e.a.dtype is not DType.i64:
        return None
    if e.op not in ("lt", "le", "gt", "ge", "eq"):
        return None
    a, b = to_linear(e.a, ranges, values), to_linear(e.b, ranges, values)
    if a.is_opaque or b.is_opaque:
        return None
    below, above = undivided(b - a), undivided(a - b)
    if e.op == "lt":
        return [undivided(b - a - 1)]
    if e.op == "le":
        return [below]
    if e.op == "gt":
        return [undivided(a - b - 1)]
    return [above] if e.op == "ge" else [above, below]
