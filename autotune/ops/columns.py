"""Windows put together again: col2im."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import integers, numeric, require
from autotune.ops.precision import accumulator, rounded
from autotune.ops.registry import Needed, operator
from autotune.ops.window import position, sides_of, window_count
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, const, read
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_


@operator("col2im", image=Needed.integers, kernel=Needed.spatial, stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1))
def col2im(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Columns (N, C * taps, windows) added up where they came from: (N, C, *image)."""
    (x,) = inputs
    numeric("col2im", x)
    image = integers("col2im", attrs, "image", None, 1)
    rank = len(image)
    kernel, stride, dilation = (integers("col2im", attrs, a, rank, 1) for a in ("kernel", "stride", "dilation"))
    pad = integers("col2im", attrs, "pad", 2 * rank, 0)
    counts = [
        window_count("col2im", image[d], kernel[d], stride[d], dilation[d], pad[d], pad[d + rank], side)
        for d, side in enumerate(sides_of(rank))
    ]
    taps, windows = math.prod(kernel), math.prod(counts)
    fits = len(x.shape) == 3 and x.shape[1] % taps == 0 and x.shape[2] == windows
    require(fits, f"col2im: columns of shape {x.shape} are no (N, C * {taps}, {windows})")
    folded = [reduce_axis(k, f"k{d}") for d, k in enumerate(kernel)]
    total = accumulator(x.dtype) if x.dtype.is_float else x.dtype

    def body(n: Expr, c: Expr, *y: Expr) -> Reduction:
        tap, window = _zero(), _zero()
        when: Expr | None = None
        for d in range(rank):
            # Window l has tap k at l * stride + k * dilation - pad.
            start = position(y[d], 1, folded[d].var * -1, dilation[d], -pad[d])
            place = start // stride[d] if stride[d] > 1 else start
            inside = (place >= 0) & (place < counts[d])
            if stride[d] > 1:
                inside = inside & binary("eq", start % stride[d], 0)
            when = inside if when is None else when & inside
            tap, window = tap * kernel[d] + folded[d].var, window * counts[d] + place
        return sum_(cast(total, read(x, (n, c * taps + tap, window), when=when)), folded)

    shape = (x.shape[0], x.shape[1] // taps, *image)
    return rounded(compute(shape, body, "col2im", ["n", "c", *(f"y{d}" for d in range(rank))]), x, "col2im")


def _zero() -> Expr:
    return const(0, DType.i64)
