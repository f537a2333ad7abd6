"""Values of generated code: an SSA name or a constant, with dtype and lanes."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autotune.tensor.dtype import DType

Scalar = float | int | bool


class Value(NamedTuple):
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


_F32 = struct.Struct("<f")

_STORED = {
    DType.f64: "double", DType.f32: "float", DType.f16: "half", DType.bf16: "i16", DType.bool: "i8",
    DType.i8: "i8", DType.u8: "i8", DType.i16: "i16", DType.u16: "i16", DType.i32: "i32", DType.u32: "i32",
    DType.i64: "i64", DType.u64: "i64", **{d: "i8" for d in DType if d.is_storage},
}  # fmt: skip


@functools.cache
def stored_type(dtype: DType, lanes: int = 0) -> str:
    """LLVM type of an element in memory."""
    return f"<{lanes} x {_STORED[dtype]}>" if lanes else _STORED[dtype]


def computed(dtype: DType) -> DType:
    """The dtype in which values of `dtype` are computed."""
    return DType.f32 if dtype in (DType.f16, DType.bf16) else dtype


@functools.cache
def computed_type(dtype: DType, lanes: int = 0) -> str:
    """LLVM type of a value in registers."""
    base = "i1" if dtype is DType.bool else _STORED[computed(dtype)]
    return f"<{lanes} x {base}>" if lanes else base


def constant(value: Scalar, dtype: DType, structural: bool = False) -> Value:
    """A constant of the dtype computed in, rounded to the dtype itself."""
    rounded: Scalar
    if dtype is DType.i64 and -(1 << 63) <= value < 1 << 63:
        rounded = int(value)
    elif dtype is DType.f32 and abs(value) < 3e38:
        rounded = _F32.unpack(_F32.pack(value))[0]  # as NumPy rounds, some ten times faster
    elif dtype.is_float:
        with np.errstate(over="ignore"):
            rounded = float(np.asarray(value, dtype.numpy))
    elif dtype is DType.bool:
        rounded = bool(value)
    else:
        wrapped = int(value) & ((1 << dtype.bits) - 1)
        rounded = wrapped - (1 << dtype.bits) if dtype.is_signed and wrapped >> (dtype.bits - 1) else wrapped
    return Value("", computed(dtype), 0, rounded, structural)


def mask_constant(bits: Sequence[bool]) -> Value:
    """A constant truth per lane."""
    if all(bits) or not any(bits):
        return Value("", DType.bool, 0, bits[0])
    text = ", ".join(f"i1 {'true' if b else 'false'}" for b in bits)
    return Value(f"<{text}>", DType.bool, len(bits))


def mask_bits(v: Value) -> tuple[bool, ...] | None:
    """The lanes of a `mask_constant`, None for other values."""
    if not v.text.startswith("<i1 "):
        return None
    return tuple(part.endswith("true") for part in v.text[1:-1].split(", "))


def suffix(dtype: DType, lanes: int) -> str:
    """What names a vector of elements in memory in LLVM's intrinsics."""
    kind = {DType.f64: "f64", DType.f32: "f32", DType.f16: "f16"}.get(dtype) or f"i{dtype.bits}"
    return f"v{lanes}{kind}"


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


def stored_literal(value: Scalar, dtype: DType) -> str:
    """LLVM text of a constant as it lies in memory."""
    number = constant(value, dtype).const
    if dtype in (DType.f16, DType.bf16):
        bits = int(np.asarray(number, dtype.numpy).view(np.uint16))
        return f"0xH{bits:04X}" if dtype is DType.f16 else str(bits)
    return str(int(bool(number))) if dtype is DType.bool else literal(number or 0, dtype)
