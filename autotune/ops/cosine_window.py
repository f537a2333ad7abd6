"""Window functions of signal processing: tensors made of positions alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import flag, integer, word
from autotune.ops.registry import Needed, operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, cast, const, unary
from autotune.tensor.stage import Tensor, compute

_COSINES = {"hann": (0.5, -0.5), "hamming": (25 / 46, -21 / 46), "blackman": (0.42, -0.5, 0.08)}


@operator("cosine_window", operands="", kind=Needed.name, size=Needed.integer, periodic=True, to="f32")
def cosine_window(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """sum over k of a[k] cos(2 pi k n / N) for n < size; N is the size, or one less when not periodic."""
    terms = _COSINES[word("cosine_window", attrs, "kind", tuple(_COSINES))]
    size = integer("cosine_window", attrs, "size", 0)
    to = DType(word("cosine_window", attrs, "to", tuple(d.value for d in DType)))
    period = size if flag("cosine_window", attrs, "periodic") else size - 1
    step = 2 * math.pi / max(period, 1)

    def body(i: Expr) -> Expr:
        angle = cast(DType.f64, i) * step
        total: Expr = const(terms[0], DType.f64)
        for k, factor in enumerate(terms[1:], 1):
            total = total + unary("cos", angle * float(k)) * factor
        return cast(to, total)

    return compute((size,), body, "cosine_window")
