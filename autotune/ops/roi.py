"""Pooling of regions of interest, which are known at run time."""

from __future__ import annotations

import functools
import math
import operator as operator_
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.ops.checks import flag, floating, integer, integers, number, require, word
from autotune.ops.registry import Needed, operator
from autotune.ops.sampling import integral, kept, working_dtype
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, cast, const, maximum, minimum, select, unary
from autotune.tensor.stage import Axis, Reduction, Tensor, compute, max_, reduce_axis, sum_


@dataclass(frozen=True, slots=True)
class Places:
    """Elements and weights of samples along one dimension; the weights of a sample that does not count are 0.

    Attributes:
        low: the element before it.
        before: weight of that element.
        after: weight of the next one.
        next: how far that is: 0 in an image of one element.
    """

    low: Tensor
    before: Tensor
    after: Tensor
    next: int

    def taps(self, r: Expr, b: Expr, j: Expr) -> list[tuple[Expr, Expr]]:
        """(element, weight) of both elements around a sample."""
        low = self.low[r, b, j]
        return [(low, self.before[r, b, j]), (low + self.next, self.after[r, b, j])]


@dataclass(frozen=True, slots=True)
class Side:
    """One dimension of the bins of regions.

    Attributes:
        rois: (R, 4), x1 y1 x2 y2.
        column: of the start; the end is two further.
        extent: of the image.
        bins: per region.
        ratio: samples per bin, 0: as many as the bin has elements, rounded up.
        scale: from the regions' coordinates to elements.
        half_pixel: coordinates are of corners of elements, and regions may be smaller than one.
    """

    rois: Tensor
    column: int
    extent: int
    bins: int
    ratio: int
    scale: float
    half_pixel: bool
    wide: DType

    @property
    def most(self) -> int:
        """Samples of a bin that may lie in the image: with a bin of its size they are nearly one element apart."""
        return self.ratio or self.extent + 4

    def start(self, r: Expr) -> Expr:
        return self._edge(r, self.column)

    def bin(self, r: Expr) -> Expr:
        """Length of a bin."""
        length = self._edge(r, self.column + 2) - self._edge(r, self.column)
        return (length if self.half_pixel else maximum(length, 1)) / self.bins

    def _edge(self, r: Expr, column: int) -> Expr:
        return cast(self.wide, self.rois[r, column]) * self.scale - (0.5 if self.half_pixel else 0.0)

    def samples(self, r: Expr) -> Expr:
        """How many samples a bin has, not below 0, as a number of the working dtype."""
        return const(self.ratio, self.wide) if self.ratio else maximum(unary("ceil", self.bin(r)), 0)

    def places(self, name: str) -> Places:
        """Stages (R, bins, most) with what all channels share about the samples that may matter."""

        def sample(r: Expr, b: Expr, j: Expr) -> tuple[Expr, Expr, Expr]:
            """(where it lies, the element before it, whether it counts)."""
            size, count = self.bin(r), maximum(self.samples(r), 1)
            first, step = self.start(r) + cast(self.wide, b) * size, size / count
            number_of = cast(self.wide, j)
            if not self.ratio:  # leave out those before the image
                number_of = number_of + maximum(unary("floor", (-1 - first) / maximum(step, 1e-6) - 0.5), 0)
            at = first + (number_of + 0.5) * step
            counts = (at >= -1) & (at <= self.extent)
            if not self.ratio:
                counts = counts & (number_of < self.samples(r))
            at = kept(at, 0, self.extent - 1)
            return at, minimum(unary("floor", at), max(self.extent - 2, 0)), counts

        def weight(at: Expr, low: Expr, counts: Expr, upper: bool) -> Expr:
            return select(counts, at - low if upper else 1 - (at - low), 0)

        shape = (self.rois.shape[0], self.bins, self.most)
        return Places(
            compute(shape, lambda r, b, j: integral(sample(r, b, j)[1]), f"{name}_low"),
            compute(shape, lambda r, b, j: weight(*sample(r, b, j), upper=False), f"{name}_before"),
            compute(shape, lambda r, b, j: weight(*sample(r, b, j), upper=True), f"{name}_after"),
            min(1, self.extent - 1),
        )

    def leaves(self, r: Expr, b: Expr) -> Expr:
        """Whether a sample of bin b lies outside of the image."""
        size, count = self.bin(r), maximum(self.samples(r), 1)
        first, step = self.start(r) + cast(self.wide, b) * size, size / count
        ends = (first + 0.5 * step, first + (count - 0.5) * step)
        return (minimum(*ends) < -1) | (maximum(*ends) > self.extent)


@operator("roi_align", operands="data rois batch", bins=Needed.pair, mode="avg", ratio=0, scale=1.0, half_pixel=True)
def roi_align(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Bins of regions (R, 4) of the images x[batch], each the mean or maximum of bilinear samples: (R, C, *bins)."""
    x, rois, batch = inputs
    floating("roi_align", x)
    floating("roi_align", rois)
    fits = len(x.shape) == 4 and rois.shape == (*batch.shape, 4) and len(batch.shape) == 1
    require(fits, f"roi_align: data of shape {x.shape}, regions {rois.shape}, batch indices {batch.shape}")
    require(batch.dtype in (DType.i32, DType.i64), f"roi_align: batch indices are {batch.dtype}")
    require(0 not in x.shape or 0 in rois.shape, f"roi_align: data of shape {x.shape} has no elements")
    bins, ratio = integers("roi_align", attrs, "bins", 2, 1), integer("roi_align", attrs, "ratio", 0)
    mode, scale = word("roi_align", attrs, "mode", ("avg", "max")), number("roi_align", attrs, "scale")
    half_pixel, wide = flag("roi_align", attrs, "half_pixel"), working_dtype(x, rois)
    rows, columns = (
        Side(rois, column, x.shape[d], bins[d - 2], ratio, scale, half_pixel, wide) for column, d in ((1, 2), (0, 3))
    )
    shape = (rois.shape[0], x.shape[1], *bins)
    names = ["r", "c", "p", "q"]

    image = compute(batch.shape, lambda r: minimum(maximum(cast(DType.i64, batch[r]), 0), x.shape[0] - 1), "roi_image")

    def finish(e: Expr, r: Expr) -> Expr:
        return cast(x.dtype, e / maximum(rows.samples(r) * columns.samples(r), 1))

    i, j = reduce_axis(rows.most, "i"), reduce_axis(columns.most, "j")
    over, along = rows.places("roi_y"), columns.places("roi_x")

    def summed(terms: Sequence[Expr]) -> Expr:
        return functools.reduce(operator_.add, terms)

    if mode == "avg" and not ratio:
        # Samples are a grid, and count for each side apart: rows first, then what they make of a row of bins.
        def row(r: Expr, c: Expr, p: Expr, z: Expr) -> Reduction:
            return sum_(summed([cast(wide, x[image[r], c, y, z]) * w for y, w in over.taps(r, p, i.var)]), i)

        lines = compute((*shape[:3], x.shape[3]), row, "roi_rows", ["r", "c", "p", "z"])

        def cell(r: Expr, c: Expr, p: Expr, q: Expr) -> Reduction:
            return sum_(summed([lines[r, c, p, z] * w for z, w in along.taps(r, q, j.var)]), j)

        total = compute(shape, cell, "roi_sum", names)
        return compute(shape, lambda r, c, p, q: finish(total[r, c, p, q], r), "roi_align", names)

    def corners(r: Expr, c: Expr, p: Expr, q: Expr) -> list[Expr]:
        return [
            cast(wide, x[image[r], c, y, z]) * (above * left)
            for y, above in over.taps(r, p, i.var)
            for z, left in along.taps(r, q, j.var)
        ]

    if mode == "avg":
        total = compute(shape, lambda r, c, p, q: sum_(summed(corners(r, c, p, q)), (i, j)), "roi_sum", names)
        return compute(shape, lambda r, c, p, q: finish(total[r, c, p, q], r), "roi_align", names)

    def largest(r: Expr, c: Expr, p: Expr, q: Expr) -> Reduction:
        above, left = over.taps(r, p, i.var), along.taps(r, q, j.var)
        counts = (above[0][1] + above[1][1]) * (left[0][1] + left[1][1]) > 0.5  # weights of a sample add up to 1
        return max_(select(counts, functools.reduce(maximum, corners(r, c, p, q)), -math.inf), (i, j))

    top = compute(shape, largest, "roi_max", names)

    def body(r: Expr, c: Expr, p: Expr, q: Expr) -> Expr:
        none = rows.samples(r) * columns.samples(r) < 1
        outside = none | rows.leaves(r, p) | columns.leaves(r, q)  # samples out there are 0
        value = top[r, c, p, q]
        return cast(x.dtype, select(none, const(0, wide), select(outside, maximum(value, 0), value)))

    return compute(shape, body, "roi_align", names)


@operator("max_roi_pool", operands="data rois", bins=Needed.pair, scale=1.0)
def max_roi_pool(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The largest element of every bin of regions (R, 5: image, x1, y1, x2, y2), ends included; empty bins are 0."""
    x, rois = inputs
    floating("max_roi_pool", x)
    floating("max_roi_pool", rois)
    fits = len(x.shape) == 4 and len(rois.shape) == 2 and rois.shape[1] == 5
    require(fits, f"max_roi_pool: data of shape {x.shape}, regions of shape {rois.shape}")
    bins, scale = integers("max_roi_pool", attrs, "bins", 2, 1), number("max_roi_pool", attrs, "scale")
    wide = working_dtype(x, rois)
    lowest = -math.inf

    def limits(r: Expr, b: Expr, column: int, count: int, extent: int) -> tuple[Expr, Expr]:
        """First element of bin b, and the one after its last."""

        def edge(c: int) -> Expr:
            v = cast(wide, rois[r, c]) * scale
            return select(v >= 0, unary("floor", v + 0.5), unary("ceil", v - 0.5))

        first = edge(column)
        size = maximum(edge(column + 2) - first + 1, 1) / count
        bin_ = cast(wide, b)
        start, end = unary("floor", bin_ * size) + first, unary("ceil", (bin_ + 1) * size) + first
        return integral(kept(start, 0, extent)), integral(kept(end, 0, extent))

    def image(r: Expr) -> Expr:
        return minimum(maximum(integral(rois[r, 0]), 0), x.shape[0] - 1)

    def within(axis: Axis, bounds: tuple[Expr, Expr]) -> Expr:
        return (axis.var >= bounds[0]) & (axis.var < bounds[1])

    y, z = reduce_axis(x.shape[2], "y"), reduce_axis(x.shape[3], "z")
    columns = compute(
        (rois.shape[0], x.shape[1], bins[0], x.shape[3]),
        lambda r, c, p, w: max_(
            select(within(y, limits(r, p, 2, bins[0], x.shape[2])), cast(wide, x[image(r), c, y, w]), lowest), y
        ),
        "roi_columns",
    )
    top = compute(
        (rois.shape[0], x.shape[1], *bins),
        lambda r, c, p, q: max_(
            select(within(z, limits(r, q, 1, bins[1], x.shape[3])), columns[r, c, p, z], lowest), z
        ),
        "roi_max",
    )

    def body(r: Expr, c: Expr, p: Expr, q: Expr) -> Expr:
        sides = (limits(r, p, 2, bins[0], x.shape[2]), limits(r, q, 1, bins[1], x.shape[3]))
        empty = (sides[0][0] >= sides[0][1]) | (sides[1][0] >= sides[1][1])
        return cast(x.dtype, select(empty, const(0, wide), top[r, c, p, q]))

    return compute(top.shape, body, "max_roi_pool")
