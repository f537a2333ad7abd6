"""Scalar expressions: what one element of a tensor is computed from.

Expressions are immutable values. Integer expressions over axis variables (dtype i64) index tensors;
`floordiv` and `floormod` are Python's `//` and `%`. Values of other dtypes follow ONNX and NumPy: `truncdiv`
rounds to zero, `max` and `min` propagate NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from autotune.errors import WorkloadError
from autotune.tensor.dtype import DType

if TYPE_CHECKING:
    from autotune.tensor.stage import Tensor

Scalar = Union[int, float, bool]
ExprLike = Union["Expr", int, float, bool]

COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
LOGIC = frozenset({"and", "or", "xor"})
ARITHMETIC = frozenset(
    {"add", "sub", "mul", "div", "truncdiv", "floordiv", "floormod", "max", "min", "pow", "shl", "shr"}
)
UNARY = frozenset(
    {
        "neg",
        "abs",
        "sqrt",
        "exp",
        "exp2",
        "log",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "gelu",
        "sigmoid",
        "floor",
        "ceil",
        "round",
        "not",
        "isnan",
        "isinf",
    }
)
_SYMBOL = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
}  # fmt: skip


class Expr:
    """Base class; arithmetic operators build new expressions. Compare values with `equal`, not `==`."""

    __slots__ = ()
    dtype: DType

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", self, other)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("floormod", self, other)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __lt__(self, other: ExprLike) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return binary("ge", self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return binary("and", self, other)

    def __or__(self, other: ExprLike) -> Expr:
        return binary("or", self, other)

    def __bool__(self) -> bool:
        raise WorkloadError(f"the truth of `{self}` is only known at run time; use select() or read(..., when=)")


@dataclass(frozen=True, slots=True)
class Const(Expr):
    value: Scalar
    dtype: DType

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Var(Expr):
    """A named scalar: an axis (i64), or an argument of a reducer's combine function."""

    name: str
    dtype: DType = DType.i64

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    op: str
    a: Expr
    b: Expr
    dtype: DType

    def __str__(self) -> str:
        symbol = _SYMBOL.get(self.op)
        return f"({self.a} {symbol} {self.b})" if symbol else f"{self.op}({self.a}, {self.b})"


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    op: str
    a: Expr
    dtype: DType

    def __str__(self) -> str:
        return f"-{self.a}" if self.op == "neg" else f"{self.op}({self.a})"


@dataclass(frozen=True, slots=True)
class Select(Expr):
    """`a` where `condition`, else `b`. Both sides may be computed; reads are guarded by `read(when=)` instead."""

    condition: Expr
    a: Expr
    b: Expr
    dtype: DType

    def __str__(self) -> str:
        return f"select({self.condition}, {self.a}, {self.b})"


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    a: Expr
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype}({self.a})"


@dataclass(frozen=True, slots=True)
class Reinterpret(Expr):
    """The same bits as another dtype of equal width (polynomials of exp and log need the exponent field)."""

    a: Expr
    dtype: DType

    def __str__(self) -> str:
        return f"reinterpret_{self.dtype}({self.a})"


@dataclass(frozen=True, slots=True)
class Read(Expr):
    """An element of a tensor. With `when`, the element is only read where it holds; `otherwise` elsewhere."""

    tensor: Tensor
    indices: tuple[Expr, ...]
    when: Expr | None = None
    otherwise: Expr | None = None

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.tensor.dtype

    def __str__(self) -> str:
        text = f"{self.tensor.name}[{', '.join(map(str, self.indices))}]"
        return text if self.when is None else f"({text} if {self.when} else {self.otherwise})"


@dataclass(frozen=True, slots=True)
class Table(Expr):
    """An element of a small constant matrix: unrolled loops fold it, and products with its zeros vanish."""

    name: str
    values: tuple[float, ...]
    shape: tuple[int, ...]
    indices: tuple[Expr, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.indices))}]"


@dataclass(frozen=True, slots=True)
class Lookup(Expr):
    """An element of a table that fits a register, by the low bits of a number: what the codes of a weight stand for.

    `values` are 2, 4, 8 or 16; `index` is a u32, of which the bits above do not count.
    """

    values: tuple[float, ...]
    index: Expr
    dtype: DType

    def __str__(self) -> str:
        return f"lookup({', '.join(f'{v:g}' for v in self.values)})[{self.index}]"


def const(value: Scalar, dtype: DType | str = DType.f32) -> Const:
    """A constant of the given dtype."""
    dtype = DType(dtype)
    if dtype.is_float:
        return Const(float(value), dtype)
    return Const(bool(value), dtype) if dtype is DType.bool else Const(int(value), dtype)


def as_expr(value: ExprLike, dtype: DType) -> Expr:
    return value if isinstance(value, Expr) else const(value, dtype)


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`a op b`; a Python scalar takes the dtype of the other side.

    Raises:
        WorkloadError: when dtypes differ or the operator does not exist.
    """
    if isinstance(a, Expr):
        b = as_expr(b, a.dtype)
    elif isinstance(b, Expr):
        a = as_expr(a, b.dtype)
    else:
        raise WorkloadError(f"`{op}` needs at least one expression, got {a!r} and {b!r}")
    if a.dtype is not b.dtype:
        raise WorkloadError(f"`{a} {op} {b}` mixes {a.dtype} and {b.dtype}; cast one side")
    if op in COMPARISONS:
        return Binary(op, a, b, DType.bool)
    if op not in ARITHMETIC and op not in LOGIC:
        raise WorkloadError(f"unknown operator {op!r}; known: {', '.join(sorted(ARITHMETIC | LOGIC | COMPARISONS))}")
    return Binary(op, a, b, a.dtype)


def unary(op: str, a: Expr) -> Expr:
    """`op(a)` of the same dtype (bool for isnan, isinf)."""
    if op not in UNARY:
        raise WorkloadError(f"unknown function {op!r}; known: {', '.join(sorted(UNARY))}")
    return Unary(op, a, DType.bool if op in ("isnan", "isinf") else a.dtype)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("max", a, b)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("min", a, b)


def select(condition: Expr, a: ExprLike, b: ExprLike) -> Expr:
    """`a` where `condition` holds, else `b`."""
    if isinstance(a, Expr):
        b = as_expr(b, a.dtype)
    elif isinstance(b, Expr):
        a = as_expr(a, b.dtype)
    else:
        raise WorkloadError("select needs at least one expression among its values; use const()")
    if a.dtype is not b.dtype:
        raise WorkloadError(f"select mixes {a.dtype} and {b.dtype}; cast one side")
    return Select(condition, a, b, a.dtype)


def cast(dtype: DType | str, a: Expr) -> Expr:
    dtype = DType(dtype)
    return a if a.dtype is dtype else Cast(a, dtype)


def read(tensor: Tensor, indices: tuple[ExprLike, ...], when: Expr | None = None, otherwise: Scalar = 0) -> Read:
    """A predicated read: `tensor[indices]` where `when` holds, else the constant `otherwise`."""
    exprs = tuple(as_expr(i, DType.i64) for i in indices)
    if len(exprs) != len(tensor.shape):
        raise WorkloadError(f"{tensor.name} has {len(tensor.shape)} dimensions, read with {len(exprs)} indices")
    for index in exprs:
        if index.dtype is not DType.i64:
            raise WorkloadError(f"index `{index}` of {tensor.name} is {index.dtype}; cast it to i64")
    return Read(tensor, exprs, when, None if when is None else const(otherwise, tensor.dtype))


def lookup(values: Sequence[float], index: Expr, dtype: DType | str = DType.f32) -> Lookup:
    """`values[index % len(values)]`, for a u32 and at most 16 values, a power of two."""
    if index.dtype is not DType.u32 or len(values) not in (2, 4, 8, 16):
        raise WorkloadError(f"a lookup is of 2, 4, 8 or 16 values by a u32, not of {len(values)} by {index.dtype}")
    return Lookup(tuple(map(float, values)), index, DType(dtype))


_CHILDREN: dict[type[Expr], Callable[[Any], tuple[Expr, ...]]] = {
    Binary: lambda e: (e.a, e.b),
    Unary: lambda e: (e.a,),
    Cast: lambda e: (e.a,),
    Reinterpret: lambda e: (e.a,),
    Select: lambda e: (e.condition, e.a, e.b),
    Read: lambda e: e.indices if e.when is None else (*e.indices, e.when),
    Lookup: lambda e: (e.index,),
    Table: lambda e: e.indices,
}
"""By kind of expression: passes ask for them more often than for anything else. Other kinds have none."""


def children(e: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions, in evaluation order."""
    found = _CHILDREN.get(type(e))
    return () if found is None else found(e)


def walk(e: Expr) -> Iterator[Expr]:
    """The expression and all below it, parents first, from left to right."""
    todo = [e]
    while todo:
        e = todo.pop()
        yield e
        todo += children(e)[::-1]


def rewrite(e: Expr, fn: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild bottom-up; `fn` sees each rebuilt node and returns a replacement or None to keep it."""
    new: Expr
    if type(e) not in _CHILDREN:
        new = e
    elif isinstance(e, Binary):
        new = Binary(e.op, rewrite(e.a, fn), rewrite(e.b, fn), e.dtype)
    elif isinstance(e, Unary):
        new = Unary(e.op, rewrite(e.a, fn), e.dtype)
    elif isinstance(e, Cast):
        new = Cast(rewrite(e.a, fn), e.dtype)
    elif isinstance(e, Reinterpret):
        new = Reinterpret(rewrite(e.a, fn), e.dtype)
    elif isinstance(e, Select):
        new = Select(rewrite(e.condition, fn), rewrite(e.a, fn), rewrite(e.b, fn), e.dtype)
    elif isinstance(e, Read):
        when = None if e.when is None else rewrite(e.when, fn)
        new = Read(e.tensor, tuple(rewrite(i, fn) for i in e.indices), when, e.otherwise)
    elif isinstance(e, Lookup):
        new = Lookup(e.values, rewrite(e.index, fn), e.dtype)
    elif isinstance(e, Table):
        new = Table(e.name, e.values, e.shape, tuple(rewrite(i, fn) for i in e.indices), e.dtype)
    else:
        new = e
    replaced = fn(new)
    return new if replaced is None else replaced


def substitute(e: Expr, values: dict[str, Expr]) -> Expr:
    """Replace variables by name."""
    return rewrite(e, lambda n: values.get(n.name) if isinstance(n, Var) else None)
