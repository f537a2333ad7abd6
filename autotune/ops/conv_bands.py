"""Grouped convolution in bands: a vector of filters reads the channels of all groups it touches.

Groups of 34 channels do not divide into vectors. Where a vector of filters lies in two groups, it is multiplied with
the channels of both; the weights of the group that a filter is not in are zero. The activations are broadcast, as
in a dense convolution, whatever the sizes of groups and vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import floating, same_dtype
from autotune.ops.conv import CONVOLUTIONS, Conv
from autotune.ops.precision import accumulator, rounded
from autotune.ops.registry import algorithm
from autotune.ops.window import inside, position
from autotune.tensor.expr import Expr, binary, cast, read
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_

WIDTHS = (16, 8, 4)
"""Filters in a vector, each an algorithm."""

WEIGHT = "bands_w"
"""The stage that holds the weights, zeros included; of constants only."""


def name(lanes: int) -> str:
    """The algorithm's name."""
    return f"bands{lanes}"


def groups_of(size: Conv, lanes: int) -> tuple[int, ...]:
    """How many groups each vector of filters lies in."""
    per_group = size.k // size.groups
    starts = range(0, size.k, lanes)
    return tuple((min(v + lanes, size.k) - 1) // per_group - v // per_group + 1 for v in starts)


def _bands(op: str, rank: int, lanes: int) -> None:
    @algorithm(op, name(lanes))
    def conv(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        """The stages bands_w, (k, band * c/groups + c, *window), and conv, summed over band, c and the window."""
        x, weight = inputs
        same_dtype(op, inputs)
        floating(f"{op} in bands", x)
        size = Conv.of(op, x.shape, weight.shape, attrs)
        total = accumulator(x.dtype)
        filters, channels, bands = size.k // size.groups, size.c // size.groups, max(groups_of(size, lanes))

        def first(k: Expr) -> Expr:
            """The first group that the vector of filter k lies in."""
            return k // lanes * lanes // filters

        def among(k: Expr, group: Expr) -> Expr:
            """Whether the vector of filter k lies in a group, too."""
            return (group <= (k // lanes * lanes + (lanes - 1)) // filters) & (group < size.groups)

        def spread(k: Expr, c: Expr, *tap: Expr) -> Expr:
            own = binary("eq", first(k) + c // channels, k // filters)
            return cast(total, read(weight, (k, c % channels, *tap), when=own))

        w = compute((size.k, bands * channels, *size.window), spread, WEIGHT)
        band, c = reduce_axis(bands, "b"), reduce_axis(channels, "c")
        taps = [reduce_axis(extent, f"r{d}") for d, extent in enumerate(size.window)]

        def body(n: Expr, k: Expr, *o: Expr) -> Reduction:
            at = [position(o[d], size.stride[d], taps[d].var, size.dilation[d], size.pad[d]) for d in range(rank)]
            group = first(k) + band.var
            when = among(k, group)
            image = inside(at, size.image, size.sides)
            element = read(x, (n, group * channels + c.var, *at), when=when if image is None else when & image)
            tap = w[(k, band.var * channels + c.var, *(t.var for t in taps))]
            return sum_(cast(total, element) * tap, (band, c, *taps))

        shape = (size.n, size.k, *size.out)
        return rounded(compute(shape, body, "conv", ("n", "k", *(f"o{d}" for d in range(rank)))), x, "conv")


for _op, _rank in CONVOLUTIONS.items():
    for _lanes in WIDTHS:
        _bands(_op, _rank, _lanes)
