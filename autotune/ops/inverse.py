"""Inverses of matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import floating, require
from autotune.ops.registry import operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import cast
from autotune.tensor.externs import Output, extern
from autotune.tensor.stage import Tensor, compute


@operator("inverse")
def inverse(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The inverse of each of the square matrices in the last two dimensions, by elimination in f64."""
    (x,) = inputs
    floating("inverse", x)
    square = len(x.shape) >= 2 and x.shape[-1] == x.shape[-2]
    require(square, f"inverse: needs square matrices, got shape {x.shape}")
    (exact,) = extern("inverse", (x,), x.shape[:-2], (Output("inverse", x.shape[-2:], DType.f64),))
    return compute(x.shape, lambda *i: cast(x.dtype, exact[i]), "inverse_rounded")
