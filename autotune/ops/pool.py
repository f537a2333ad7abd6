"""Pooling over windows of images of any rank; global pooling is a reduction over the spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.ops.checks import flag, floating, integers, number, numeric, require
from autotune.ops.precision import sum_dtype
from autotune.ops.registry import Needed, operator
from autotune.ops.window import image_element, inside, overhang, position, sides_of, window_count
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, const, maximum, minimum, select, unary
from autotune.tensor.reducer import arg_reducer, lowest
from autotune.tensor.stage import Axis, Reduction, Tensor, compute, compute_many, max_, reduce, reduce_axis, sum_


@dataclass(frozen=True, slots=True)
class Pool:
    """Checked sizes of a pooling operator, one entry per spatial dimension (`pad`: all before, then all after)."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    image: tuple[int, ...]
    count: tuple[int, ...]

    @staticmethod
    def of(op: str, x: Tensor, attrs: Mapping[str, Any]) -> Pool:
        """Sizes of a pooling of x.

        Raises:
            WorkloadError: when they do not fit together.
        """
        rank = len(x.shape) - 2
        require(rank >= 1, f"{op}: data (N,C,...) needs at least 3 dimensions, got shape {x.shape}")
        kernel, stride, dilation = (integers(op, attrs, a, rank, 1) for a in ("kernel", "stride", "dilation"))
        pad, up = integers(op, attrs, "pad", 2 * rank, 0), flag(op, attrs, "ceil_mode")
        count = []
        for d, side in enumerate(sides_of(rank)):
            widest, window = max(pad[d], pad[d + rank]), (kernel[d] - 1) * dilation[d] + 1
            require(widest < window, f"{op}: pad {widest} of the {side} must be smaller than the window {window}")
            count.append(
                window_count(op, x.shape[d + 2], kernel[d], stride[d], dilation[d], pad[d], pad[d + rank], side, up)
            )
        return Pool(kernel, stride, pad, dilation, x.shape[2:], tuple(count))

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def sides(self) -> list[tuple[bool, bool]]:
        """Whether windows overhang the image, before and after, per dimension."""
        return [
            overhang(self.image[d], self.count[d], self.kernel[d], self.stride[d], self.dilation[d], self.pad[d])
            for d in range(self.rank)
        ]

    @property
    def names(self) -> list[str]:
        """Names of the axes of the result."""
        letters = "dhw"[3 - self.rank :] if self.rank <= 3 else [str(d) for d in range(self.rank)]
        return ["n", "c", *(f"o{letter}" for letter in letters)]

    def window(self) -> tuple[Axis, ...]:
        """Axes over the taps of a window."""
        return tuple(reduce_axis(k, f"k{name[1:]}") for k, name in zip(self.kernel, self.names[2:], strict=True))

    def places(self, o: Sequence[Expr], taps: Sequence[Axis]) -> list[Expr]:
        """Where in the image the taps of window `o` lie."""
        return [position(o[d], self.stride[d], taps[d].var, self.dilation[d], self.pad[d]) for d in range(self.rank)]

    def fold(
        self, x: Tensor, name: str, fold: Callable[..., Reduction], element: Callable[[Expr], Expr],
        otherwise: float | int,
    ) -> Tensor:  # fmt: skip
        """`fold` of `element` of every tap, over every window."""
        taps = self.window()

        def body(n: Expr, c: Expr, *o: Expr) -> Reduction:
            return fold(element(image_element(x, n, c, self.places(o, taps), self.sides, otherwise)), taps)

        return compute((*x.shape[:2], *self.count), body, name, self.names)

    def taps(self, d: int, o: Expr, with_padding: bool) -> Expr | int:
        """How many taps of window `o` along side `d` lie in the image, or in the padded image."""
        size, before = self.image[d], self.pad[d]
        if with_padding:
            size, before = size + before + self.pad[d + self.rank], 0
        kernel, dilation = self.kernel[d], self.dilation[d]
        low, high = overhang(size, self.count[d], kernel, self.stride[d], dilation, before)
        start = position(o, self.stride[d], const(0, DType.i64), 1, before)

        def steps(distance: Expr) -> Expr:
            return distance // dilation if dilation > 1 else distance

        first: Expr | int = maximum(-steps(start), 0) if low else 0
        return (minimum(steps(size - 1 - start) + 1, kernel) if high else kernel) - first


POOLING: dict[str, Any] = {
    "kernel": Needed.spatial, "stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "ceil_mode": False,
}  # fmt: skip


@operator("max_pool", **POOLING)
def max_pool(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The largest element of every window; padding is smaller than anything."""
    (x,) = inputs
    numeric("max_pool", x)
    size = Pool.of("max_pool", x, attrs)
    return size.fold(x, "max_pool", max_, lambda e: e, lowest(x.dtype).value)


@operator("max_pool_index", column_major=False, **POOLING)
def max_pool_index(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Where in the flat data `max_pool` found each element (i64), the first of equal ones.

    With `column_major`, positions inside an image count its first spatial dimension fastest.
    """
    (x,) = inputs
    numeric("max_pool_index", x)
    size = Pool.of("max_pool_index", x, attrs)
    column_major = flag("max_pool_index", attrs, "column_major")
    taps, reducer = size.window(), arg_reducer("argmax", x.dtype)

    def flat(at: Sequence[Expr]) -> Expr:
        total = at[0]
        for place, extent in zip(at[1:], size.image[1:], strict=True):
            total = total * extent + place
        return total

    def body(n: Expr, c: Expr, *o: Expr) -> Reduction:
        at = size.places(o, taps)
        element = image_element(x, n, c, at, size.sides, lowest(x.dtype).value)
        within = inside(at, size.image, size.sides)
        place = flat(at) if within is None else select(within, flat(at), -1)
        return reduce(reducer, (element, place), taps)

    shape = (*x.shape[:2], *size.count)
    _, found = compute_many(shape, body, ("pool_max", "pool_place"), size.names)
    points = 1
    for extent in size.image:
        points *= extent

    def index(n: Expr, c: Expr, *o: Expr) -> Expr:
        place: Expr = found[(n, c, *o)]
        if column_major and size.rank > 1:
            rest = place
            parts: list[Expr] = []
            for extent in reversed(size.image):
                parts.append(rest % extent)
                rest = rest // extent
            place, stride = parts[-1], size.image[0]
            for part, extent in zip(reversed(parts[:-1]), size.image[1:], strict=True):
                place, stride = place + part * stride, stride * extent
        return (n * x.shape[1] + c) * points + place

    return compute(shape, index, "max_pool_index", size.names)


@operator("avg_pool", count_include_pad=False, **POOLING)
def avg_pool(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The mean of every window: over the elements inside the image, or inside the padding too."""
    (x,) = inputs
    floating("avg_pool", x)
    size = Pool.of("avg_pool", x, attrs)
    padded = flag("avg_pool", attrs, "count_include_pad")
    total = sum_dtype(x.dtype)
    summed = size.fold(x, "avg_sum", sum_, lambda e: cast(total, e), 0)

    def body(n: Expr, c: Expr, *o: Expr) -> Expr:
        known, counted = 1, None
        for d, at in enumerate(o):
            taps = size.taps(d, at, padded)
            if isinstance(taps, int):
                known *= taps
            else:
                counted = taps if counted is None else counted * taps
        value = summed[(n, c, *o)]
        if counted is None:
            return cast(x.dtype, value / known)
        return cast(x.dtype, value / cast(total, counted * known if known > 1 else counted))

    return compute(summed.shape, body, "avg_pool", size.names)


@operator("lp_pool", p=2.0, **POOLING)
def lp_pool(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The p-norm of every window; padding adds nothing."""
    (x,) = inputs
    floating("lp_pool", x)
    p = number("lp_pool", attrs, "p")
    require(p > 0, f"lp_pool: p={p} must be positive")
    size = Pool.of("lp_pool", x, attrs)
    total = sum_dtype(x.dtype)
    summed = size.fold(x, "lp_sum", sum_, lambda e: power(cast(total, e), p), 0)
    return compute(summed.shape, lambda *i: cast(x.dtype, root(summed[i], p)), "lp_pool", size.names)


def power(e: Expr, p: float) -> Expr:
    """|e| ** p."""
    if p == 2:
        return e * e
    return unary("abs", e) if p == 1 else binary("pow", unary("abs", e), p)


def root(e: Expr, p: float) -> Expr:
    """e ** (1 / p)."""
    if p == 2:
        return unary("sqrt", e)
    return e if p == 1 else binary("pow", e, 1 / p)
