"""Convolution of few channels along rows: the pixels of a window that lie side by side are one axis of the sum.

Of an image with three channels the instructions that fold neighbours along channels fold three at a time. Where a row
of the image lies as one sequence, channel by channel and pixel by pixel, all that a window reads of it are neighbours:
7 pixels of 4 channels are 28 terms, a step of the window to the next two pixels is one of 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import factors, numeric, require
from autotune.ops.conv import CONVOLUTIONS, Conv, border
from autotune.ops.precision import accumulator, rounded, stored
from autotune.ops.registry import algorithm
from autotune.ops.window import inside, position
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, cast, read
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_

NAME = "rows"
"""The algorithm's name."""

ROWS, WEIGHT = "rows", "rows_w"
"""The stages that hold the image in rows, with its border, and the weights; these of constants only."""

FEW = 8
"""Channels, at most: of more, neighbours enough lie together as they are."""


def channels_of(size: Conv, dtype: DType) -> int:
    """Channels that a pixel has in its row, some of them zeros: a power of two, so that pixels are put together by
    halves, and with floats of 16 bits the window is of whole pairs."""
    found = 1 << (size.c - 1).bit_length()
    return max(found, 2) if dtype.is_float and size.s % 2 else found


def terms_of(size: Conv, dtype: DType) -> int:
    """Terms along a row of the window. Of bytes in fours: the last ones read what is behind it, times zero, which
    floats must not, since they may be infinite."""
    terms = size.s * channels_of(size, dtype)
    return -(-terms // 4) * 4 if dtype.is_int else terms


def in_rows(size: Conv) -> bool:
    """Whether windows read neighbouring pixels, of few channels, for more filters, along which vectors lie."""
    return size.groups == 1 and size.c <= FEW < size.k and size.s > 1 and size.dilation[-1] == 1


def _rows(op: str, rank: int) -> None:
    @algorithm(op, NAME)
    def conv(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        """The stages rows, (n, *image, pixel * channels + channel) with the border, rows_w, (k, *window, terms), and
        conv, the sum over the window's rows and their terms."""
        x, weight = inputs
        numeric(op, x)
        factors(op, x, weight)
        size = Conv.of(op, x.shape, weight.shape, attrs)
        require(in_rows(size), f"{op} in rows: not of few channels, more filters and neighbouring pixels, or in groups")
        border(op, x, size.pad_value)
        image, filters = stored(x), stored(weight)
        total, channels, terms = accumulator(x.dtype), channels_of(size, image.dtype), terms_of(size, image.dtype)
        step = size.stride[-1] * channels
        spans = [
            (out - 1) * stride + (window - 1) * dilation + 1
            for out, stride, window, dilation in zip(size.out, size.stride, size.window, size.dilation, strict=True)
        ][:-1]

        def laid(n: Expr, *o: Expr) -> Expr:
            at = [y - before if before else y for y, before in zip(o, size.pad)]
            at[-1] = o[-1] // channels - size.pad[rank - 1]
            channel = o[-1] % channels
            exists = inside(at, size.image, ((True, True),) * rank)
            if channels > size.c:
                exists = channel < size.c if exists is None else exists & (channel < size.c)
            return read(image, (n, channel, *at), when=exists, otherwise=size.pad_value)

        def spread(k: Expr, *o: Expr) -> Expr:
            channel, tap = o[-1] % channels, o[-1] // channels
            exists = (channel < size.c) & (tap < size.s)
            return read(filters, (k, channel, *o[:-1], tap), when=exists)

        rows = compute((size.n, *spans, (size.ow - 1) * step + terms), laid, ROWS)
        w = compute((size.k, *size.window[:-1], terms), spread, WEIGHT)
        taps = [reduce_axis(extent, f"r{d}") for d, extent in enumerate(size.window[:-1])]
        term = reduce_axis(terms, "t")

        def body(n: Expr, k: Expr, *o: Expr) -> Reduction:
            at = [position(y, s, tap.var, d, 0) for y, s, tap, d in zip(o, size.stride, taps, size.dilation)]
            element = rows[(n, *at, o[-1] * step + term.var)]
            tap = w[(k, *(t.var for t in taps), term.var)]
            return sum_(cast(total, element) * cast(total, tap), (*taps, term))

        shape = (size.n, size.k, *size.out)
        return rounded(compute(shape, body, "conv", ("n", "k", *(f"o{d}" for d in range(rank)))), x, "conv")


for _op, _rank in CONVOLUTIONS.items():
    _rows(_op, _rank)
