"""Convolution whose pixels are one axis: in a copy of the image with its border, row behind row.

In such a copy any pixel of a window lies equally far behind the window's first one, wherever that is. So pixels of
several rows make up a tile that instructions on matrices multiply at a time, where a row of the image is no multiple of
what they take: of 7 pixels a row they fill 7 of 16. The sums of windows that begin in the border at a row's end, which
reach into the next row, are computed too, and read by nobody.

Windows of one pixel need no border: the copy has the pixels that they read, with any stride.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import factors, numeric, require
from autotune.ops.conv import CONVOLUTIONS, Conv, border
from autotune.ops.precision import accumulator, rounded, stored
from autotune.ops.registry import algorithm
from autotune.ops.window import inside
from autotune.tensor.expr import Expr, cast, read
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_

NAME = "pixels"
"""The algorithm's name."""

PIXELS, SUMS = "pixels", "pixels_m"
"""The stages that hold the copy, (n, pixel, channel), and the sums, (n, filter, pixel)."""


def has_one_axis(size: Conv) -> bool:
    """Whether windows lie equally far apart in a copy, or read one pixel each."""
    return size.groups == 1 and size.rank > 1 and (set(size.stride) == {1} or set(size.window) == {1})


def spans(size: Conv) -> tuple[int, ...]:
    """Extents of the copy along the image's axes."""
    axes = zip(size.out, size.window, size.dilation, strict=True)
    return tuple(out + (window - 1) * dilation for out, window, dilation in axes)


def pitches(size: Conv) -> tuple[int, ...]:
    """Pixels of the copy from one position along each axis to the next."""
    extents = spans(size)
    return tuple(math.prod(extents[d + 1 :]) for d in range(size.rank))


def number_of_sums(size: Conv) -> int:
    """From the first window's to the last one's, those of windows that begin in the border included."""
    return sum((out - 1) * pitch for out, pitch in zip(size.out, pitches(size), strict=True)) + 1


def _pixels(op: str) -> None:
    @algorithm(op, NAME)
    def conv(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        """The stages `PIXELS`, `SUMS`, and conv, which takes the sums of windows that there are."""
        x, weight = inputs
        numeric(op, x)
        factors(op, x, weight)
        size = Conv.of(op, x.shape, weight.shape, attrs)
        require(
            has_one_axis(size) and min(size.n, size.c, *size.out) > 0,
            f"{op}: {NAME} needs an image of elements along two axes, no groups, and stride 1 or windows of one pixel",
        )
        border(op, x, size.pad_value)
        image, filters, total = stored(x), stored(weight), accumulator(x.dtype)
        extents, steps = spans(size), pitches(size)

        def laid(n: Expr, q: Expr, c: Expr) -> Expr:
            at = list[Expr]()
            for d, (extent, step) in enumerate(zip(extents, steps, strict=True)):
                o = q // step if step > 1 else q
                o = (o % extent if d else o) * size.stride[d]
                at.append(o - size.pad[d] if size.pad[d] else o)
            return read(image, (n, c, *at), when=inside(at, size.image, size.sides), otherwise=size.pad_value)

        copy = compute((size.n, math.prod(extents), size.c), laid, PIXELS, ("n", "q", "c"))
        c = reduce_axis(size.c, "c")
        taps = [reduce_axis(extent, f"r{d}") for d, extent in enumerate(size.window)]

        def body(n: Expr, k: Expr, p: Expr) -> Reduction:
            for tap, dilation, step in zip(taps, size.dilation, steps, strict=True):
                p = p + tap.var * (dilation * step)
            return sum_(cast(total, copy[n, p, c.var]) * cast(total, filters[(k, c, *taps)]), (*taps, c))

        sums = compute((size.n, size.k, number_of_sums(size)), body, SUMS, ("n", "k", "p"))

        def result(n: Expr, k: Expr, *o: Expr) -> Expr:
            place = o[-1]
            for position, step in zip(o[:-1], steps[:-1], strict=True):
                place = place + position * step
            return sums[n, k, place]

        return rounded(compute((size.n, size.k, *size.out), result, "conv"), x, "conv")


for _op in CONVOLUTIONS:
    _pixels(_op)
