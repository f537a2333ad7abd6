"""Windows whose elements are taken from shifted points: what deformable convolutions multiply with their weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import floating, integer, integers, require, same_dtype
from autotune.ops.registry import Needed, operator
from autotune.ops.sampling import element_or_zero, integral, kept, linear_weight, working_dtype
from autotune.ops.window import position, sides_of, window_count
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, cast, const, select, unary
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_


@operator(
    "deform_windows", operands="data offset mask?", kernel=Needed.spatial, stride=(1, 1), pad=(0, 0, 0, 0),
    dilation=(1, 1), groups=1,
)  # fmt: skip
def deform_windows(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The windows of data (N, *image, groups * C), channels last: (N, *result, taps, groups, C), f32 or f64.

    Element k of a window lies `offset` (N, groups * taps * rank, *result) beside its usual place and is scaled by
    `mask` (N, groups * taps, *result). Points between elements are interpolated linearly; outside of the image is 0.
    """
    x, offset, *rest = inputs
    rank = len(x.shape) - 2
    floating("deform_windows", x)
    same_dtype("deform_windows", inputs)
    require(rank >= 1, f"deform_windows: data of shape {x.shape} is no (N, *image, channels)")
    groups = integer("deform_windows", attrs, "groups", 1)
    require(x.shape[-1] % groups == 0, f"deform_windows: {x.shape[-1]} channels in {groups} groups")
    kernel = integers("deform_windows", attrs, "kernel", rank, 1)
    stride, dilation = (integers("deform_windows", attrs, a, rank, 1) for a in ("stride", "dilation"))
    pad = integers("deform_windows", attrs, "pad", 2 * rank, 0)
    n, *image, channels = x.shape
    depth, taps = channels // groups, math.prod(kernel)
    counts = tuple(
        window_count("deform_windows", image[d], kernel[d], stride[d], dilation[d], pad[d], pad[d + rank], side)
        for d, side in enumerate(sides_of(rank))
    )
    for t, name, each in ((offset, "offset", rank), *((m, "mask", 1) for m in rest)):
        wanted = (n, groups * taps * each, *counts)
        require(t.shape == wanted, f"deform_windows: {name} of shape {t.shape}, {wanted} is needed")
    wide = working_dtype(x)
    names = [f"o{d}" for d in range(rank)]

    def point(*i: Expr) -> Expr:
        """Coordinate i[-1] of a point of the image, in elements."""
        b, *o, tap, group, d = i
        shift = cast(wide, offset[(b, (group * taps + tap) * rank + d, *o)])
        place: Expr | None = None
        outer = tap
        for axis in reversed(range(rank)):
            here = outer % kernel[axis] if axis else outer
            outer = outer // kernel[axis]
            plain = position(o[axis], stride[axis], here, dilation[axis], pad[axis])
            v = kept(cast(wide, plain) + shift, -2, image[axis] + 1)
            place = v if place is None else select(d <= axis, v, place)
        assert place is not None  # there is at least one dimension
        return place

    at = compute((n, *counts, taps, groups, rank), point, "deform_point", ["n", *names, "tap", "group", "d"])
    corners = [reduce_axis(2, f"t{d}") for d in range(rank)]

    def sample(*i: Expr) -> Reduction:
        b, *o, tap, group, c = i
        where: list[Expr] = []
        factor: Expr = const(1.0, wide)
        for d in range(rank):
            v = at[(b, *o, tap, group, const(d, DType.i64))]
            low = unary("floor", v)
            part = linear_weight(v - low - cast(wide, corners[d].var))
            factor = factor * part if d else part
            where.append(integral(low) + corners[d].var)
        for mask in rest:
            factor = factor * cast(wide, mask[(b, group * taps + tap, *o)])
        return sum_(cast(wide, element_or_zero(x, (b, group * depth + c), where, behind=1)) * factor, corners)

    shape = (n, *counts, taps, groups, depth)
    return compute(shape, sample, "deform_windows", ["n", *names, "tap", "group", "c"])
