"""In which dtype sums are kept, and how they get back to the operands' own."""

from __future__ import annotations

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Cast, Read, cast
from autotune.tensor.stage import Tensor, compute


def sum_dtype(dtype: DType) -> DType:
    """The dtype in which a sum is kept whose result has `dtype`: 16-bit floats are summed in f32."""
    return DType.f32 if dtype in (DType.f16, DType.bf16) else dtype


def accumulator(dtype: DType) -> DType:
    """The dtype in which products of `dtype` are summed: also i32 for 8-bit integers, as ONNX's integer products."""
    return DType.i32 if dtype in (DType.i8, DType.u8) else sum_dtype(dtype)


def stored(t: Tensor) -> Tensor:
    """The 16-bit floats of which `t` are the values in f32, each where it is; `t` itself where it is something else."""
    body = t.stage.body[0] if t.stage is not None and t.stage.reducer is None and len(t.stage.body) == 1 else None
    if t.stage is None or not isinstance(body, Cast) or not isinstance(body.a, Read):
        return t
    source, same = body.a.tensor, body.a.indices == tuple(axis.var for axis in t.stage.axes)
    narrow = source.dtype in (DType.f16, DType.bf16) and body.dtype is DType.f32
    return source if narrow and same and body.a.when is None else t


def rounded(t: Tensor, source: Tensor, name: str) -> Tensor:
    """A sum kept in f32, as the 16-bit float that its operands had; anything else unchanged."""
    if t.dtype is source.dtype or not source.dtype.is_float:
        return t
    return compute(t.shape, lambda *i: cast(source.dtype, t[i]), name=f"{name}_rounded")
