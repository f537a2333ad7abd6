"""Overlapping frames of a signal, of which transforms take the spectrum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import integer, require
from autotune.ops.registry import operator
from autotune.tensor.stage import Tensor, compute


@operator("frames", size=1, step=1)
def frames(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """frames[b, f, n, ...] = x[b, f * step + n, ...]: all whole frames of `size` elements along dimension 1."""
    (x,) = inputs
    size, step = integer("frames", attrs, "size", 1), integer("frames", attrs, "step", 1)
    require(len(x.shape) >= 2 and x.shape[1] >= size, f"frames: size={size} is more than there is of shape {x.shape}")
    shape = (x.shape[0], (x.shape[1] - size) // step + 1, size, *x.shape[2:])
    return compute(shape, lambda b, f, n, *rest: x[(b, f * step + n, *rest)], "frames",
                   [f"i{d}" for d in range(len(shape))])  # fmt: skip
