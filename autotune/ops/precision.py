"""In which dtype sums are kept, and how they get back to the operands' own."""

from __future__ import annotations

from autotune.tensor.dtype import DType
from autotune.tensor.expr import cast
from autotune.tensor.stage import Tensor, compute


def sum_dtype(dtype: DType) -> DType:
    """The dtype in which a sum is kept whose result has `dtype`: 16-bit floats are summed in f32."""
    return DType.f32 if dtype in (DType.f16, DType.bf16) else dtype


def accumulator(dtype: DType) -> DType:
    """The dtype in which products of `dtype` are summed: also i32 for 8-bit integers, as ONNX's integer products."""
    return DType.i32 if dtype in (DType.i8, DType.u8) else sum_dtype(dtype)


def rounded(t: Tensor, source: Tensor, name: str) -> Tensor:
    """A sum kept in f32, as the 16-bit float that its operands had; anything else unchanged."""
    if t.dtype is source.dtype or not source.dtype.is_float:
        return t
    return compute(t.shape, lambda *i: cast(source.dtype, t[i]), name=f"{name}_rounded")
