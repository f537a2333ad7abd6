"""Probabilities of several classes, by those between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import floating, require
from autotune.ops.registry import operator
from autotune.tensor.externs import Output, extern
from autotune.tensor.stage import Tensor


@operator("coupled_probabilities")
def coupled_probabilities(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """(..., n) that sum to 1, from (..., n, n): how likely each class is where the class is one of two; see
    `autotune.tensor.coupling`."""
    (x,) = inputs
    floating("coupled_probabilities", x)
    square = len(x.shape) >= 2 and x.shape[-1] == x.shape[-2] > 0
    require(square, f"coupled_probabilities: needs square matrices, got shape {x.shape}")
    output = Output("coupled_probabilities", x.shape[-1:], x.dtype)
    return extern("coupled_probabilities", (x,), x.shape[:-2], (output,))[0]
