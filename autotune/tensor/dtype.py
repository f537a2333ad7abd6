"""Element types of tensors."""

from __future__ import annotations

import builtins
import enum
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt


class DType(str, enum.Enum):
    """An element type. The value is its canonical name in JSON, keys and messages."""

    f64 = "f64"
    f32 = "f32"
    f16 = "f16"
    bf16 = "bf16"
    i8 = "i8"
    u8 = "u8"
    i16 = "i16"
    u16 = "u16"
    i32 = "i32"
    u32 = "u32"
    i64 = "i64"
    u64 = "u64"
    bool = "bool"

    def __str__(self) -> str:
        return self.value

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that holds this element type in memory."""
        return _NUMPY[self]

    @property
    def bits(self) -> int:
        """Width in memory in bits (bool takes one byte)."""
        return self.bytes * 8

    @property
    def bytes(self) -> int:
        """Width in memory in bytes."""
        return _NUMPY[self].itemsize

    @property
    def is_float(self) -> builtins.bool:
        return self in _FLOATS

    @property
    def is_int(self) -> builtins.bool:
        return self not in _FLOATS and self is not DType.bool

    @property
    def is_signed(self) -> builtins.bool:
        return self.is_float or self.value.startswith("i")

    @staticmethod
    def of(array_dtype: npt.DTypeLike) -> DType:
        """The DType of a NumPy dtype.

        Raises:
            KeyError: for dtypes that tensors cannot have (strings, complex, objects).
        """
        return _FROM_NUMPY[np.dtype(array_dtype)]


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.f64: np.dtype(np.float64),
    DType.f32: np.dtype(np.float32),
    DType.f16: np.dtype(np.float16),
    DType.bf16: np.dtype(ml_dtypes.bfloat16),
    DType.i8: np.dtype(np.int8),
    DType.u8: np.dtype(np.uint8),
    DType.i16: np.dtype(np.int16),
    DType.u16: np.dtype(np.uint16),
    DType.i32: np.dtype(np.int32),
    DType.u32: np.dtype(np.uint32),
    DType.i64: np.dtype(np.int64),
    DType.u64: np.dtype(np.uint64),
    DType.bool: np.dtype(np.bool_),
}
_FROM_NUMPY = {numpy_dtype: dtype for dtype, numpy_dtype in _NUMPY.items()}
_FLOATS = frozenset({DType.f64, DType.f32, DType.f16, DType.bf16})
