"""Convolution over any number of spatial axes on logical N, C, ... tensors: dense, grouped or depthwise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.ops.checks import factors, integer, integers, numeric, rank_of, require
from autotune.ops.precision import accumulator, rounded
from autotune.ops.registry import operator
from autotune.ops.window import image_element, overhang, position, sides_of, taps_inside, window_count
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, cast
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_

CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
"""Spatial axes of each operator."""

SUM_BITS = 32
"""Of sums of products of 8-bit integers."""

MOST_POINTS = 8
"""Along one side of a transformed tile: more would cost most of the precision."""

BORDERS = {DType.u8: (0, 255), DType.i8: (-128, 127)}
"""Data that may be padded with another value than 0: least and largest one."""


@dataclass(frozen=True, slots=True)
class Conv:
    """Checked sizes of a convolution: x (n, c, *image), weight (k, c/groups, *window), result (n, k, *out).

    The last two spatial axes have short names: image h, w; window r, s; result oh, ow. A single axis has height 1.

    Attributes:
        pad: before each spatial axis, then after each.
        pad_value: what is read there; other than 0 in 8-bit integers only, whose zero point it is.
        sum_bits: in which every sum fits, its sign included: known of constant weights, and less than those of its type
            where an algorithm asks for it.
        points: along one side of a tile that an algorithm transforms, at most: the more, the more rounding errors are
            amplified.
        rounded: the same of tiles whose transformed elements an algorithm may round to bf16; 0: of none.
    """

    n: int
    c: int
    k: int
    image: tuple[int, ...]
    window: tuple[int, ...]
    out: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    pad_value: int = 0
    sum_bits: int = SUM_BITS
    points: int = MOST_POINTS
    rounded: int = 0

    @staticmethod
    def of(op: str, x: tuple[int, ...], weight: tuple[int, ...], attrs: Mapping[str, Any]) -> Conv:
        """Sizes of `op` on data of shape `x`.

        Raises:
            WorkloadError: when they do not fit together.
        """
        rank = CONVOLUTIONS[op]
        stride, dilation = (integers(op, attrs, a, rank, 1) for a in ("stride", "dilation"))
        pad = integers(op, attrs, "pad", 2 * rank, 0)
        groups = integer(op, attrs, "groups", 1)
        (n, c, *image), (k, per_group, *window) = x, weight
        require(min(k, *window) >= 1, f"{op}: weight of shape {weight} is empty")
        require(c % groups == 0 and k % groups == 0, f"{op}: groups={groups} does not divide {c} and {k} channels")
        reads = f"weight of shape {weight} with groups={groups} reads {per_group * groups}"
        require(per_group * groups == c, f"{op}: data has {c} channels, {reads}")
        out = tuple(
            window_count(op, image[d], window[d], stride[d], dilation[d], pad[d], pad[d + rank], side)
            for d, side in enumerate(sides_of(rank))
        )
        value = integer(op, attrs, "pad_value") if "pad_value" in attrs else 0
        bits = integer(op, attrs, "sum_bits", 1) if "sum_bits" in attrs else SUM_BITS
        require(bits <= SUM_BITS, f"{op}: sum_bits={bits} is more than the {SUM_BITS} that sums have")
        points = integer(op, attrs, "points", 1) if "points" in attrs else MOST_POINTS
        require(points <= MOST_POINTS, f"{op}: points={points} is more than the {MOST_POINTS} that tiles have")
        rounded = integer(op, attrs, "rounded", 0) if "rounded" in attrs else 0
        require(rounded <= points, f"{op}: rounded={rounded} is more than the {points} points that tiles may have")
        return Conv(
            n, c, k, tuple(image), tuple(window), out, stride, pad, dilation, groups, value, bits, points, rounded
        )

    @property
    def h(self) -> int:
        return self.image[-2] if self.rank > 1 else 1

    @property
    def w(self) -> int:
        return self.image[-1]

    @property
    def r(self) -> int:
        return self.window[-2] if self.rank > 1 else 1

    @property
    def s(self) -> int:
        return self.window[-1]

    @property
    def oh(self) -> int:
        return self.out[-2] if self.rank > 1 else 1

    @property
    def ow(self) -> int:
        return self.out[-1]

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.image)

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return math.prod(self.window)

    @property
    def multiplications(self) -> int:
        """Of the plain sum, without those of taps that lie in padding."""
        axes = zip(self.image, self.out, self.window, self.stride, self.dilation, self.pad, strict=False)
        return self.n * self.k * (self.c // self.groups) * math.prod(taps_inside(*axis) for axis in axes)

    @property
    def sides(self) -> tuple[tuple[bool, bool], ...]:
        """Whether windows overhang the image (before, after), per spatial axis."""
        axes = zip(self.image, self.out, self.window, self.stride, self.dilation, self.pad, strict=False)
        return tuple(overhang(*axis) for axis in axes)


def _convolution(op: str, rank: int) -> None:
    @operator(
        op, operands="data weight", weights="weight", traits="leads_layout", stride=(1,) * rank, pad=(0,) * (2 * rank),
        dilation=(1,) * rank, groups=1, rare="pad_value sum_bits points rounded", pad_value=0,
        sum_bits=SUM_BITS, points=MOST_POINTS, rounded=0,
    )  # fmt: skip
    def conv(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        """conv[n,k,oh,ow] = sum over c,r,s of x[n, c, oh*sh + r*dh - top, ow*sw + s*dw - left] * w[k,c,r,s].

        Outside of the image x is `pad_value`. 16-bit floats are summed in f32 and rounded at the end; 8-bit integers,
        of which one may be signed, give i32.
        """
        x, weight = inputs
        for t, what in ((x, "data (N,C,...)"), (weight, "weight (K,C/groups,...)")):
            rank_of(op, t, rank + 2, what)
        numeric(op, x)
        factors(op, x, weight)
        size = Conv.of(op, x.shape, weight.shape, attrs)
        border(op, x, size.pad_value)
        total = accumulator(x.dtype)
        per_group, per_filter = size.c // size.groups, size.k // size.groups
        depthwise = per_group == 1 and size.groups > 1
        c = reduce_axis(per_group, "c")
        taps = [reduce_axis(extent, name) for extent, name in zip(size.window, _names("q", "r", "s", rank))]

        def body(n: Expr, k: Expr, *o: Expr) -> Reduction:
            at = [position(o[d], size.stride[d], taps[d].var, size.dilation[d], size.pad[d]) for d in range(rank)]
            if depthwise:
                channel: Expr = k if per_filter == 1 else k // per_filter
                tap = weight[(k, 0, *taps)]
            else:
                channel = c.var if size.groups == 1 else k // per_filter * per_group + c.var
                tap = weight[(k, c, *taps)]
            element = image_element(x, n, channel, at, size.sides, size.pad_value)
            product = cast(total, element) * cast(total, tap)
            return sum_(product, taps if depthwise else (c, *taps))

        axes = ("n", "k", *_names("od", "oh", "ow", rank))
        return rounded(compute((size.n, size.k, *size.out), body, "conv", axes), x, "conv")


def border(op: str, x: Tensor, value: int) -> None:
    """Raise WorkloadError where the data cannot be surrounded by this value."""
    if not value:
        return
    require(x.dtype in BORDERS, f"{op}: pad_value={value} is for 8-bit integers, the data is {x.dtype}")
    low, high = BORDERS[x.dtype]
    require(low <= value <= high, f"{op}: pad_value={value} is no {x.dtype}, which go from {low} to {high}")


def _names(deep: str, high: str, wide: str, rank: int) -> tuple[str, ...]:
    """A name per spatial axis, the last ones first."""
    return (deep, high, wide)[-rank:]


for _op, _rank in CONVOLUTIONS.items():
    _convolution(_op, _rank)
