"""Keys for sorting: integers whose order is that of the elements, whatever their dtype."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Reinterpret, binary, cast, const, select, unary


@dataclass(frozen=True, slots=True)
class Order:
    """What belongs first: the largest elements, or the smallest; NaN comes last, -0.0 and 0.0 are equal.

    Attributes:
        dtype: of the elements.
        largest: the largest come first.
    """

    dtype: DType
    largest: bool

    @property
    def key_dtype(self) -> DType:
        """Of keys: i64 for elements of 64 bits, else i32."""
        return DType.i64 if self.dtype.bits == 64 else DType.i32

    @property
    def bits(self) -> int:
        """Keys lie in -2 ** (bits - 1) .. 2 ** (bits - 1) - 1."""
        return max(self.dtype.bits, 32) if self.dtype.is_float else self.dtype.bits

    @property
    def last(self) -> int:
        """No key is larger."""
        return (1 << self.bits - 1) - 1

    def key(self, x: Expr) -> Expr:
        """An integer of an element: less means further to the front."""
        ascending = self._of_float(x) if self.dtype.is_float else self._of_integer(x)
        key = binary("xor", ascending, -1) if self.largest else ascending
        return select(unary("isnan", x), const(self.last, key.dtype), key) if self.dtype.is_float else key

    def _of_float(self, x: Expr) -> Expr:
        wide = x if self.dtype is DType.f64 else cast(DType.f32, x)
        bits = Reinterpret(select(binary("eq", wide, 0.0), const(0.0, wide.dtype), wide), self.key_dtype)
        # Below zero, floats fall as their bits grow: all bits but the sign are turned around.
        return binary("xor", bits, binary("and", binary("shr", bits, self.bits - 1), self.last))

    def _of_integer(self, x: Expr) -> Expr:
        if self.dtype.is_signed:
            return cast(self.key_dtype, x)
        if self.dtype.bits < 32:
            return cast(self.key_dtype, x) - (1 << self.bits - 1)
        return binary("xor", Reinterpret(x, self.key_dtype), -1 - self.last)
