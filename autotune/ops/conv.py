"""2-D convolution on logical NCHW tensors, dense, grouped or depthwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.ops.checks import integer, integers, numeric, rank_of, require, same_dtype
from autotune.ops.precision import accumulator, rounded
from autotune.ops.registry import operator
from autotune.ops.window import image_element, overhang, position, window_count
from autotune.tensor.expr import Expr, cast
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_


@dataclass(frozen=True, slots=True)
class Conv2d:
    """Checked sizes of a convolution: x (n, c, h, w), weight (k, c/groups, r, s), result (n, k, oh, ow)."""

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    oh: int
    ow: int
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @staticmethod
    def of(x: Tensor, weight: Tensor, attrs: Mapping[str, Any]) -> Conv2d:
        """Sizes of `conv2d(x, weight)`.

        Raises:
            WorkloadError: when they do not fit together.
        """
        rank_of("conv2d", x, 4, "data (N,C,H,W)")
        rank_of("conv2d", weight, 4, "weight (K,C/groups,R,S)")
        numeric("conv2d", x)
        same_dtype("conv2d", (x, weight))
        stride, dilation = (integers("conv2d", attrs, a, 2, 1) for a in ("stride", "dilation"))
        pad = integers("conv2d", attrs, "pad", 4, 0)
        groups = integer("conv2d", attrs, "groups", 1)
        (n, c, h, w), (k, per_group, r, s) = x.shape, weight.shape
        require(min(k, r, s) >= 1, f"conv2d: weight of shape {weight.shape} is empty")
        require(c % groups == 0 and k % groups == 0, f"conv2d: groups={groups} does not divide {c} and {k} channels")
        reads = f"weight of shape {weight.shape} with groups={groups} reads {per_group * groups}"
        require(per_group * groups == c, f"conv2d: data has {c} channels, {reads}")
        oh = window_count("conv2d", h, r, stride[0], dilation[0], pad[0], pad[2], "height")
        ow = window_count("conv2d", w, s, stride[1], dilation[1], pad[1], pad[3], "width")
        return Conv2d(n, c, h, w, k, r, s, oh, ow, stride, pad, dilation, groups)

    @property
    def sides(self) -> tuple[tuple[bool, bool], tuple[bool, bool]]:
        """Whether windows overhang the image (above, below), (left, right)."""
        return (
            overhang(self.h, self.oh, self.r, self.stride[0], self.dilation[0], self.pad[0]),
            overhang(self.w, self.ow, self.s, self.stride[1], self.dilation[1], self.pad[1]),
        )


@operator(
    "conv2d", operands="data weight", weights="weight", stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1), groups=1
)
def conv2d(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """conv[n,k,oh,ow] = sum over c,r,s of x[n, c, oh*sh + r*dh - top, ow*sw + s*dw - left] * w[k,c,r,s].

    16-bit floats are summed in f32 and rounded at the end; 8-bit integers give i32.
    """
    x, weight = inputs
    size = Conv2d.of(x, weight, attrs)
    total = accumulator(x.dtype)
    per_group, per_filter = size.c // size.groups, size.k // size.groups
    c, r, s = reduce_axis(per_group, "c"), reduce_axis(size.r, "r"), reduce_axis(size.s, "s")
    depthwise = per_group == 1 and size.groups > 1

    def body(n: Expr, k: Expr, oh: Expr, ow: Expr) -> Reduction:
        y = position(oh, size.stride[0], r.var, size.dilation[0], size.pad[0])
        z = position(ow, size.stride[1], s.var, size.dilation[1], size.pad[1])
        if depthwise:
            channel: Expr = k if per_filter == 1 else k // per_filter
            tap = weight[k, 0, r, s]
        else:
            channel = c.var if size.groups == 1 else k // per_filter * per_group + c.var
            tap = weight[k, c, r, s]
        product = cast(total, image_element(x, n, channel, (y, z), size.sides)) * cast(total, tap)
        return sum_(product, (r, s) if depthwise else (c, r, s))

    return rounded(compute((size.n, size.k, size.oh, size.ow), body, name="conv"), x, "conv")
