"""Windows taken apart and put together again: col2im, and convolution at shifted points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import floating, integer, integers, numeric, require, same_dtype
from autotune.ops.precision import accumulator, rounded, sum_dtype
from autotune.ops.registry import Needed, operator
from autotune.ops.sampling import element_or_zero, integral, kept, linear_weight, working_dtype
from autotune.ops.window import position, sides_of, window_count
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, const, read, unary
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


@operator(
    "deform_conv", operands="data weight offset mask?", weights="weight", stride=(1, 1), pad=(0, 0, 0, 0),
    dilation=(1, 1), groups=1, offset_groups=1,
)  # fmt: skip
def deform_conv(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """A convolution whose taps are shifted by `offset` (N, offset_groups * taps * rank, *result) and scaled by `mask`.

    Points between elements are interpolated linearly; outside of the image is 0.
    """
    x, weight, offset, *rest = inputs
    rank = len(x.shape) - 2
    floating("deform_conv", x)
    same_dtype("deform_conv", inputs)
    groups, shifts = (integer("deform_conv", attrs, a, 1) for a in ("groups", "offset_groups"))
    stride, dilation = (integers("deform_conv", attrs, a, rank, 1) for a in ("stride", "dilation"))
    pad = integers("deform_conv", attrs, "pad", 2 * rank, 0)
    require(rank >= 1 and len(weight.shape) == rank + 2, f"deform_conv: weight of shape {weight.shape} for {x.shape}")
    (n, c), kernel, taps = x.shape[:2], weight.shape[2:], math.prod(weight.shape[2:])
    counts = tuple(
        window_count("deform_conv", x.shape[d + 2], kernel[d], stride[d], dilation[d], pad[d], pad[d + rank], side)
        for d, side in enumerate(sides_of(rank))
    )
    divides = weight.shape[0] % groups == 0 and weight.shape[1] * groups == c and c % shifts == 0
    require(divides, f"deform_conv: {c} channels, weight of shape {weight.shape}, {groups} groups, {shifts} of offsets")
    for t, name, each in ((offset, "offset", rank), *((m, "mask", 1) for m in rest)):
        wanted = (n, shifts * taps * each, *counts)
        require(t.shape == wanted, f"deform_conv: {name} of shape {t.shape}, {wanted} is needed")
    wide, total = working_dtype(x), sum_dtype(x.dtype)
    corners = [reduce_axis(2, f"t{d}") for d in range(rank)]
    per_shift, per_group, per_filter = c // shifts, c // groups, weight.shape[0] // groups

    def sample(b: Expr, channel: Expr, tap: Expr, *o: Expr) -> Reduction:
        at: list[Expr] = []
        factor: Expr | None = None
        first, outer = channel // per_shift * taps + tap, tap
        for d in reversed(range(rank)):
            here = outer % kernel[d] if d else outer
            outer = outer // kernel[d]
            plain = position(o[d], stride[d], here, dilation[d], pad[d])
            v = cast(wide, plain) + cast(wide, offset[(b, first * rank + d, *o)])
            v = kept(v, -2, x.shape[d + 2] + 1)
            low = unary("floor", v)
            part = linear_weight(v - low - cast(wide, corners[d].var))
            factor = part if factor is None else factor * part
            at.append(integral(low) + corners[d].var)
        assert factor is not None
        for mask in rest:
            factor = factor * cast(wide, mask[(b, first, *o)])
        return sum_(cast(wide, element_or_zero(x, (b, channel), at[::-1])) * factor, corners)

    names = [f"o{d}" for d in range(rank)]
    sampled = compute((n, c, taps, *counts), sample, "deform_sample", ["n", "c", "tap", *names])
    inner = [reduce_axis(per_group, "c"), *(reduce_axis(k, f"k{d}") for d, k in enumerate(kernel))]

    def body(b: Expr, k: Expr, *o: Expr) -> Reduction:
        tap = _zero()
        for d, axis in enumerate(inner[1:]):
            tap = tap * kernel[d] + axis.var
        channel = inner[0].var if groups == 1 else k // per_filter * per_group + inner[0].var
        value = cast(total, sampled[(b, channel, tap, *o)])
        return sum_(value * cast(total, weight[(k, *inner)]), inner)

    return rounded(compute((n, weight.shape[0], *counts), body, "deform_conv", ["n", "k", *names]), x, "deform_conv")
