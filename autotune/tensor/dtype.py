"""Element types of tensors.

Numbers of less than a byte and 8-bit floats are **storage types**: a byte holds one number, and nothing is computed in
them. They are copied, and read and made by conversions (`autotune.tensor.formats`).
"""

from __future__ import annotations

import builtins
import contextlib
import enum
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.install import lacking


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
    i4 = "i4"
    u4 = "u4"
    i2 = "i2"
    u2 = "u2"
    f8e4m3fn = "f8e4m3fn"
    f8e4m3fnuz = "f8e4m3fnuz"
    f8e5m2 = "f8e5m2"
    f8e5m2fnuz = "f8e5m2fnuz"
    f8e8m0 = "f8e8m0"
    f6e2m3 = "f6e2m3"
    f6e3m2 = "f6e3m2"
    f4e2m1 = "f4e2m1"

    def __str__(self) -> str:
        return self.value

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that holds this element type in memory.

        Raises:
            IncompleteInstallError: ml_dtypes, which has it, is not installed.
        """
        found = _OWN[self] if self in _OWN else _others().get(self)
        if found is None:
            raise lacking("ml_dtypes", f"the element type {self}")
        return found

    @property
    def bits(self) -> int:
        """Width in memory in bits (bool and storage types take one byte)."""
        return self.bytes * 8

    @property
    def bytes(self) -> int:
        """Width in memory in bytes."""
        return _BYTES[self]

    @property
    def is_float(self) -> builtins.bool:
        return self in _FLOATS

    @property
    def is_int(self) -> builtins.bool:
        return self not in _FLOATS and self not in _STORAGE and self is not DType.bool

    @property
    def is_storage(self) -> builtins.bool:
        """Numbers of this type are only kept: they are converted before anything is computed."""
        return self in _STORAGE

    @property
    def is_signed(self) -> builtins.bool:
        return self.is_float or self.value.startswith("i")

    @staticmethod
    def of(array_dtype: npt.DTypeLike) -> DType:
        """The DType of a NumPy dtype, or of what NumPy takes for one: "float32", "bfloat16".

        Raises:
            KeyError: for dtypes that tensors cannot have (strings, complex, objects).
            TypeError, ValueError: for what is no dtype.
        """
        try:
            wanted = np.dtype(array_dtype)
        except TypeError:  # NumPy knows the names of those in ml_dtypes once that is imported
            _others()
            wanted = np.dtype(array_dtype)
        return _OF_OWN.get(wanted) or _of_others()[wanted]


_OWN: dict[DType, np.dtype[Any]] = {
    DType.f64: np.dtype(np.float64),
    DType.f32: np.dtype(np.float32),
    DType.f16: np.dtype(np.float16),
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
_OTHERS = {  # in ml_dtypes
    DType.bf16: "bfloat16",
    DType.i4: "int4",
    DType.u4: "uint4",
    DType.i2: "int2",
    DType.u2: "uint2",
    DType.f8e4m3fn: "float8_e4m3fn",
    DType.f8e4m3fnuz: "float8_e4m3fnuz",
    DType.f8e5m2: "float8_e5m2",
    DType.f8e5m2fnuz: "float8_e5m2fnuz",
    DType.f8e8m0: "float8_e8m0fnu",
    DType.f6e2m3: "float6_e2m3fn",
    DType.f6e3m2: "float6_e3m2fn",
    DType.f4e2m1: "float4_e2m1fn",
}


@functools.cache
def _others() -> dict[DType, np.dtype[Any]]:
    """Those of ml_dtypes where it is installed, which a compiled file may run without; imported by who needs one."""
    with contextlib.suppress(ModuleNotFoundError):
        import ml_dtypes

        return {dtype: np.dtype(getattr(ml_dtypes, name)) for dtype, name in _OTHERS.items()}
    return {}


@functools.cache
def _of_others() -> dict[np.dtype[Any], DType]:
    return {numpy_dtype: dtype for dtype, numpy_dtype in _others().items()}


_BYTES = dict.fromkeys(_OTHERS, 1) | {DType.bf16: 2} | {dtype: own.itemsize for dtype, own in _OWN.items()}
_OF_OWN = {numpy_dtype: dtype for dtype, numpy_dtype in _OWN.items()}
_FLOATS = frozenset({DType.f64, DType.f32, DType.f16, DType.bf16})
_STORAGE = frozenset(list(DType)[list(DType).index(DType.i4) :])
