"""Max and average pooling over windows of NCHW images; global pooling is reduce_max or reduce_mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.ops.checks import flag, floating, integers, numeric, rank_of, require
from autotune.ops.precision import sum_dtype
from autotune.ops.registry import Needed, operator
from autotune.ops.window import image_element, overhang, position, window_count
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, cast, const, maximum, minimum
from autotune.tensor.reducer import lowest
from autotune.tensor.stage import Reduction, Tensor, compute, max_, reduce_axis, sum_


@dataclass(frozen=True, slots=True)
class Pool2d:
    """Checked sizes of a pooling operator."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    image: tuple[int, ...]
    count: tuple[int, int]

    @staticmethod
    def of(op: str, x: Tensor, attrs: Mapping[str, Any]) -> Pool2d:
        """Sizes of a pooling of x.

        Raises:
            WorkloadError: when they do not fit together.
        """
        rank_of(op, x, 4, "data (N,C,H,W)")
        kernel, stride, dilation = (integers(op, attrs, a, 2, 1) for a in ("kernel", "stride", "dilation"))
        pad, up = integers(op, attrs, "pad", 4, 0), flag(op, attrs, "ceil_mode")
        for d, side in enumerate(("height", "width")):
            widest = max(pad[d], pad[d + 2])
            require(widest < kernel[d], f"{op}: pad {widest} of the {side} must be smaller than the kernel {kernel[d]}")
        oh, ow = (
            window_count(op, x.shape[d + 2], kernel[d], stride[d], dilation[d], pad[d], pad[d + 2], side, up)
            for d, side in enumerate(("height", "width"))
        )
        return Pool2d(kernel, stride, pad, dilation, x.shape[2:], (oh, ow))

    @property
    def sides(self) -> list[tuple[bool, bool]]:
        """Whether windows overhang the image (above, below), (left, right)."""
        return [
            overhang(self.image[d], self.count[d], self.kernel[d], self.stride[d], self.dilation[d], self.pad[d])
            for d in (0, 1)
        ]

    def fold(
        self, x: Tensor, name: str, fold: Callable[..., Reduction], dtype: DType, otherwise: float | int
    ) -> Tensor:
        """`fold` over every window."""
        r, s = reduce_axis(self.kernel[0], "r"), reduce_axis(self.kernel[1], "s")

        def body(n: Expr, c: Expr, oh: Expr, ow: Expr) -> Reduction:
            y = position(oh, self.stride[0], r.var, self.dilation[0], self.pad[0])
            z = position(ow, self.stride[1], s.var, self.dilation[1], self.pad[1])
            return fold(cast(dtype, image_element(x, n, c, y, z, self.sides, otherwise)), (r, s))

        return compute((*x.shape[:2], *self.count), body, name)

    def taps(self, d: int, o: Expr, with_padding: bool) -> Expr | int:
        """How many taps of window `o` along side `d` lie in the image, or in the padded image."""
        size, before = self.image[d], self.pad[d]
        if with_padding:
            size, before = size + before + self.pad[d + 2], 0
        kernel, dilation = self.kernel[d], self.dilation[d]
        low, high = overhang(size, self.count[d], kernel, self.stride[d], dilation, before)
        start = position(o, self.stride[d], const(0, DType.i64), 1, before)

        def steps(distance: Expr) -> Expr:
            return distance // dilation if dilation > 1 else distance

        first: Expr | int = maximum(-steps(start), 0) if low else 0
        return (minimum(steps(size - 1 - start) + 1, kernel) if high else kernel) - first


@operator("max_pool2d", kernel=Needed.pair, stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1), ceil_mode=False)
def max_pool2d(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The largest element of every window; padding is smaller than anything."""
    (x,) = inputs
    numeric("max_pool2d", x)
    size = Pool2d.of("max_pool2d", x, attrs)
    return size.fold(x, "max_pool", max_, x.dtype, lowest(x.dtype).value)


@operator(
    "avg_pool2d", kernel=Needed.pair, stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1), ceil_mode=False,
    count_include_pad=False,
)  # fmt: skip
def avg_pool2d(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The mean of every window: over the elements inside the image, or inside the padding too."""
    (x,) = inputs
    floating("avg_pool2d", x)
    size = Pool2d.of("avg_pool2d", x, attrs)
    padded = flag("avg_pool2d", attrs, "count_include_pad")
    total = sum_dtype(x.dtype)
    summed = size.fold(x, "avg_sum", sum_, total, 0)

    def body(n: Expr, c: Expr, oh: Expr, ow: Expr) -> Expr:
        rows, columns = size.taps(0, oh, padded), size.taps(1, ow, padded)
        value = summed[n, c, oh, ow]
        if isinstance(rows, int) and isinstance(columns, int):
            return cast(x.dtype, value / (rows * columns))
        count = rows * columns
        assert isinstance(count, Expr)  # one of the two is
        return cast(x.dtype, value / cast(total, count))

    return compute(summed.shape, body, "avg_pool")
