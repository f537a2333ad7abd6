"""Values of generated code: an SSA name or a constant, with dtype and lanes."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np

from autotune.tensor.dtype import DType

Scalar = float | int | bool


@dataclass(frozen=True, slots=True)
class Value:
    """A scalar (lanes 0) or vector.

    Attributes:
        text: LLVM operand; empty for constants.
        dtype: the dtype computed in (f16 and bf16 are computed in f32).
        lanes: 0 for a scalar.
        const: the number, the same in all lanes, or None.
        structural: the constant comes from a small matrix: products with zero vanish.
    """

    text: str
    dtype: DType
    lanes: int = 0
    const: Scalar | None = None
    structural: bool = False


_STORED = {
    DType.f64: "double", DType.f32: "float", DType.f16: "half", DType.bf16: "i16", DType.bool: "i8",
    DType.i8: "i8", DType.u8: "i8", DType.i16: "i16", DType.u16: "i16", DType.i32: "i32", DType.u32: "i32",
    DType.i64: "i64", DType.u64: "i64",
}  # fmt: skip


def stored_type(dtype: DType, lanes: int = 0) -> str:
    """LLVM type of an element in memory."""
    return f"<{lanes} x {_STORED[dtype]}>" if lanes else _STORED[dtype]


def computed(dtype: DType) -> DType:
    """The dtype in which values of `dtype` are computed."""
    return DType.f32 if dtype in (DType.f16, DType.bf16) else dtype


def computed_type(dtype: DType, lanes: int = 0) -> str:
    """LLVM type of a value in registers."""
    base = "i1" if dtype is DType.bool else _STORED[computed(dtype)]
    return f"<{lanes} x {base}>" if lanes else base


def constant(value: Scalar, dtype: DType, structural: bool = False) -> Value:
    """A constant of the dtype computed in, rounded to the dtype itself."""
    if dtype.is_float:
        with np.errstate(over="ignore"):
            rounded: Scalar = float(np.asarray(value, dtype.numpy))
    elif dtype is DType.bool:
        rounded = bool(value)
    else:
        wrapped = int(value) & ((1 << dtype.bits) - 1)
        rounded = wrapped - (1 << dtype.bits) if dtype.is_signed and wrapped >> (dtype.bits - 1) else wrapped
    return Value("", computed(dtype), 0, rounded, structural)


def literal(value: Scalar, dtype: DType, lanes: int = 0) -> str:
    """LLVM text of a constant of the dtype computed in."""
    if dtype is DType.bool:
        text = "true" if value else "false"
    elif dtype.is_float:
        number = float("nan") if math.isnan(value) else float(value)
        text = f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    else:
        text = str(int(value))
    return f"splat ({computed_type(dtype)} {text})" if lanes else text
