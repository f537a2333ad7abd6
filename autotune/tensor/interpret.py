"""Values of expressions over a box of axis points, vectorised with NumPy.

Reads with affine indices become strided views (no copy); a read predicated by ranges of its own indices becomes
a view of a padded copy. Everything else is gathered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import WorkloadError
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr, Lookup, Read, Reinterpret, Select, Table, Unary, Var
from autotune.tensor.linear import Linear, Range, conjunction, nonnegatives, to_linear
from autotune.tensor.stage import Axis

Array = npt.NDArray[Any]


FEW = 8
"""Indices of an axis that are looked at one by one."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of points: `start <= axis < start + extent` for each axis, in order."""

    names: tuple[str, ...]
    starts: tuple[int, ...]
    extents: tuple[int, ...]

    @staticmethod
    def of(axes: Sequence[Axis]) -> Box:
        return Box(tuple(a.name for a in axes), (0,) * len(axes), tuple(a.extent for a in axes))

    def __add__(self, other: Box) -> Box:
        return Box(self.names + other.names, self.starts + other.starts, self.extents + other.extents)

    @property
    def points(self) -> int:
        return math.prod(self.extents)

    def part(self, dimension: int, start: int, extent: int) -> Box:
        """The slice of `extent` points from `start` (counted from the box's own start) along one dimension."""
        starts, extents = list(self.starts), list(self.extents)
        starts[dimension] += start
        extents[dimension] = extent
        return Box(self.names, tuple(starts), tuple(extents))

    def ranges(self) -> dict[str, tuple[int, int]]:
        """Inclusive range of every axis."""
        return {n: (s, s + e - 1) for n, s, e in zip(self.names, self.starts, self.extents, strict=True)}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Evaluates expressions.

    Attributes:
        arrays: contents of every tensor that may be read, by name.
        precision: dtype in which all float arithmetic is done; None means each value's own dtype, except that
            f16 and bf16 are computed in f32 and rounded where a tensor is stored.
        variables: values of variables that are not axes (arguments of a reducer's combine function).
    """

    arrays: Mapping[str, Array]
    precision: DType | None = None
    variables: Mapping[str, Array] = field(default_factory=dict)

    def number(self, dtype: DType) -> np.dtype[Any]:
        """The NumPy dtype in which values of `dtype` are computed."""
        if not dtype.is_float:
            return dtype.numpy
        if self.precision is not None:
            return self.precision.numpy
        return DType.f32.numpy if dtype.bits == 16 else dtype.numpy

    def storage(self, dtype: DType) -> np.dtype[Any]:
        """The NumPy dtype in which a tensor of `dtype` is kept."""
        return self.precision.numpy if dtype.is_float and self.precision is not None else dtype.numpy

    def bind(self, variables: Mapping[str, Array]) -> Interpreter:
        return replace(self, variables=variables)

    def value(self, e: Expr, box: Box) -> Array:
        """The value at every point: an array that broadcasts to `box.extents`, with extent 1 where it is constant."""
        if isinstance(e, Read):
            otherwise = e.otherwise.value if isinstance(e.otherwise, Const) else None
            found = self._element(self.arrays[e.tensor.name], e, e.indices, e.when, otherwise, box)
            return found.astype(self.number(e.dtype), copy=False)
        if isinstance(e, Const):
            return np.asarray(e.value).astype(self.number(e.dtype))  # that a type has not may stand where nobody goes
        if isinstance(e, Var):
            if e.name in self.variables:
                return self.variables[e.name]
            d = box.names.index(e.name)
            shape = [1] * len(box.names)
            shape[d] = box.extents[d]
            return np.arange(box.starts[d], box.starts[d] + box.extents[d], dtype=np.int64).reshape(shape)
        if isinstance(e, Binary):
            kind = _INTEGER if e.a.dtype.is_int and e.op in _INTEGER else _BINARY
            return np.asarray(kind[e.op](self.value(e.a, box), self.value(e.b, box)))
        if isinstance(e, Unary):
            return np.asarray(_UNARY[e.op](self.value(e.a, box)))
        if isinstance(e, Select):
            return self._either(e, np.asarray(self.value(e.condition, box)), box)
        if isinstance(e, Cast):
            source = self.value(e.a, box)
            if e.dtype.is_int and source.dtype.kind == "f":
                return _saturated(source, e.dtype)
            return source.astype(self.storage(e.dtype)).astype(self.number(e.dtype), copy=False)
        if isinstance(e, Reinterpret):
            bits = self.value(e.a, box).astype(e.a.dtype.numpy)
            return bits.view(e.dtype.numpy).astype(self.number(e.dtype), copy=False)
        if isinstance(e, Lookup):
            known = np.array(e.values, dtype=self.number(e.dtype))
            return np.asarray(known[self.value(e.index, box) % len(known)])
        if isinstance(e, Table):
            values = np.array(e.values, dtype=self.number(e.dtype)).reshape(e.shape)
            return self._element(values, e, e.indices, None, None, box)
        raise TypeError(f"{type(e).__name__} has no value")

    def _either(self, e: Select, chosen: Array, box: Box) -> Array:
        """One of two values at every point; where few indices of one axis decide, only that one is computed."""
        if chosen.all() or not chosen.any():
            return self.value(e.a if chosen.all() else e.b, box)
        varied = [d for d, extent in enumerate(chosen.shape) if extent > 1]
        if len(varied) > 1 or chosen.size > FEW or chosen.ndim != len(box.names):
            return np.where(chosen, self.value(e.a, box), self.value(e.b, box))
        (d,) = varied
        each = [self.value(e.a if which else e.b, box.part(d, n, 1)) for n, which in enumerate(chosen.ravel().tolist())]
        return np.concatenate(
            np.broadcast_arrays(*(np.reshape(x, x.shape or (1,) * chosen.ndim) for x in each)), axis=d
        )

    def _element(
        self, array: Array, e: Expr, indices: tuple[Expr, ...], when: Expr | None, otherwise: Any, box: Box
    ) -> Array:
        if box.points == 0:
            return np.zeros([min(n, 1) for n in box.extents], array.dtype)
        ranges = box.ranges()
        forms = [to_linear(i, ranges) for i in indices]
        if all(t in ranges for f in forms for t in f.terms):
            allowed = _allowed(forms, when, ranges)
            if allowed is not None:
                return _view(array, e, forms, allowed, otherwise, box)
        return self._gather(array, e, indices, when, otherwise, box)

    def _gather(
        self, array: Array, e: Expr, indices: tuple[Expr, ...], when: Expr | None, otherwise: Any, box: Box
    ) -> Array:
        one = np.zeros((1,) * len(box.names), np.int64)
        wanted = np.broadcast_arrays(one, *(self.value(i, box) for i in indices))[1:]
        holds = None if when is None else self.value(when, box)
        inside = np.asarray(True)
        for index, extent in zip(wanted, array.shape, strict=True):
            inside = inside & (index >= 0) & (index < extent)
        if not np.all(inside if holds is None else inside | ~holds):
            raise WorkloadError(f"`{e}` reads outside of the shape {array.shape}")
        if 0 in array.shape:
            return np.full(one.shape, otherwise, array.dtype)
        clipped = tuple(np.clip(i, 0, n - 1) for i, n in zip(wanted, array.shape, strict=True))
        found = array[clipped]
        return found if holds is None else np.where(holds, found, np.asarray(otherwise, array.dtype))


def _allowed(forms: Sequence[Linear], when: Expr | None, ranges: dict[str, Range]) -> list[Range] | None:
    """Inclusive range of each index outside of which `when` fails; None when `when` says something else too."""
    allowed = [f.range(ranges) for f in forms]
    for condition in () if when is None else conjunction(when):
        bounds = nonnegatives(condition, ranges)
        if bounds is None:
            return None
        for g in bounds:
            low, high = g.range(ranges)
            if low >= 0:
                continue
            if high < 0:
                return [(1, 0)] * max(len(forms), 1)
            for d, f in enumerate(forms):
                low, high = allowed[d]
                if (f - g).is_const:
                    allowed[d] = max(low, (f - g).const), high
                    break
                if (f + g).is_const:
                    allowed[d] = low, min(high, (f + g).const)
                    break
            else:
                return None
    return allowed


def _view(array: Array, e: Expr, forms: Sequence[Linear], allowed: list[Range], otherwise: Any, box: Box) -> Array:
    """The strided view of `array`, or of a copy padded with `otherwise` outside of the allowed ranges."""
    if any(low > high for low, high in allowed):
        return np.full((1,) * len(box.names), otherwise, array.dtype)
    if any(low < 0 or high >= n for (low, high), n in zip(allowed, array.shape, strict=True)):
        raise WorkloadError(f"`{e}` reads outside of the shape {array.shape}")
    needed = [f.range(box.ranges()) for f in forms]
    origin = [0] * len(forms)
    if allowed != needed:
        padded = np.full([high - low + 1 for low, high in needed], otherwise, array.dtype)
        target = tuple(slice(a - n, b - n + 1) for (a, b), (n, _) in zip(allowed, needed, strict=True))
        padded[target] = array[tuple(slice(a, b + 1) for a, b in allowed)]
        array, origin = padded, [low for low, _ in needed]
    shape, strides = [1] * len(box.names), [0] * len(box.names)
    corner: list[Any] = []
    for f, start, step in zip(forms, origin, array.strides, strict=True):
        at = f.const - start
        for name, coefficient in f.terms.items():
            d = box.names.index(str(name))
            at += coefficient * box.starts[d]
            shape[d] = box.extents[d]
            strides[d] += coefficient * step
        corner.append(slice(at, at + 1))
    first = array[(*corner, ...)]
    raw = first.view(np.uint8) if first.itemsize == 1 else first  # NumPy cannot describe an 8-bit float to itself
    return np.lib.stride_tricks.as_strided(raw, shape, strides, writeable=False).view(first.dtype)


def _erf(x: Array) -> Array:
    values = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return values.reshape(x.shape).astype(x.dtype)


def _sigmoid(x: Array) -> Array:
    power = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, power, 1) / (1 + power), x.dtype)


def _gelu(x: Array) -> Array:
    return np.asarray(x * 0.5 * (1 + _erf(x * math.sqrt(0.5))))


def _truncdiv(a: Array, b: Array) -> Array:
    """Quotient rounded to zero; 0 when b is 0."""
    quotient: Array = np.floor_divide(a, b)
    inexact = (quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    return np.asarray(quotient + inexact.astype(quotient.dtype))


def _float_truncdiv(a: Array, b: Array) -> Array:
    return np.asarray(np.trunc(a / b))


def _int_pow(a: Array, b: Array) -> Array:
    """Integer power; with a negative exponent the exact quotient rounded to zero."""
    positive = np.power(a, np.maximum(b, 0))
    sign = np.where(b % 2 == 0, a * a, a)
    return np.where(b >= 0, positive, np.where(np.abs(a) == 1, sign, 0)).astype(a.dtype)


_BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "truncdiv": _float_truncdiv,
    "floordiv": np.floor_divide, "floormod": np.mod, "max": np.maximum, "min": np.minimum, "pow": np.power,
    "shl": np.left_shift, "shr": np.right_shift, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
_INTEGER: dict[str, Callable[[Array, Array], Any]] = {"div": _truncdiv, "truncdiv": _truncdiv, "pow": _int_pow}
_UNARY: dict[str, Callable[[Array], Any]] = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "exp2": np.exp2, "log": np.log, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": _erf,
    "gelu": _gelu,
    "sigmoid": _sigmoid, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "not": np.invert, "isnan": np.isnan,
    "isinf": np.isinf,
}  # fmt: skip


def _saturated(source: Array, dtype: DType) -> Array:
    """Floats as integers, as kernels convert them: towards zero, to the nearest end of the range, NaN to 0."""
    ends = np.iinfo(dtype.numpy)
    inside = (source > float(ends.min)) & (source < float(ends.max))
    whole = np.where(inside, source, 0).astype(dtype.numpy)
    return np.where(source >= float(ends.max), ends.max, np.where(source <= float(ends.min), ends.min, whole)).astype(
        dtype.numpy
    )
