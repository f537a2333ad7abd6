"""Sampling images at points that another tensor holds, and the points of an affine map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import flag, floating, integers, numeric, require, word
from autotune.ops.registry import Needed, operator
from autotune.ops.sampling import (
    cubic_weight,
    element_or_zero,
    integral,
    kept,
    linear_weight,
    mirrored,
    mirrored_index,
    working_dtype,
)
from autotune.tensor.expr import Expr, cast, const, maximum, minimum, select, unary
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_

FARTHEST = 4.0  # elements beyond an image at which nothing of it counts any more


@operator("grid_sample", operands="data grid", mode="linear", padding="zeros", align_corners=False, channels_last=False)
def grid_sample(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x (N, C, *image) at the points of grid (N, *result, rank), whose coordinates are -1..1 and innermost first.

    With `channels_last`, x is (N, *image, C), and so is the result: all channels of a point are neighbours.
    """
    x, grid = inputs
    rank = len(x.shape) - 2
    numeric("grid_sample", x)
    floating("grid_sample", grid)
    fits = rank >= 1 and len(grid.shape) == rank + 2 and grid.shape[0] == x.shape[0] and grid.shape[-1] == rank
    require(fits, f"grid_sample: data of shape {x.shape} and a grid of shape {grid.shape} do not fit together")
    mode = word("grid_sample", attrs, "mode", ("nearest", "linear", "cubic"))
    padding = word("grid_sample", attrs, "padding", ("zeros", "border", "reflection"))
    align, wide = flag("grid_sample", attrs, "align_corners"), working_dtype(x, grid)
    last = flag("grid_sample", attrs, "channels_last")
    image, channels = (x.shape[1:-1], x.shape[-1]) if last else (x.shape[2:], x.shape[1])
    require(0 not in image or 0 in grid.shape, f"grid_sample: there is nothing to sample in data of shape {x.shape}")

    def point(*i: Expr) -> Expr:
        """Coordinate i[-1] of the image, counted from the outermost, in elements."""
        v: Expr | None = None
        for d, extent in reversed(list(enumerate(image))):
            here = _point(cast(wide, grid[(*i[:-1], rank - 1 - d)]), extent, mode, padding, align)
            v = here if v is None else select(i[-1] <= d, here, v)
        assert v is not None  # there is at least one dimension
        return v

    points = compute((*grid.shape[:-1], rank), point, "grid_point")
    names = [f"o{d}" for d in range(rank)]
    if last:
        shape, axes = (*grid.shape[:-1], channels), ["n", *names, "c"]
    else:
        shape, axes = (x.shape[0], channels, *grid.shape[1:-1]), ["n", "c", *names]

    def parts(i: Sequence[Expr]) -> tuple[Expr, Expr, Sequence[Expr]]:
        """Image, channel and point of an element of the result."""
        return (i[0], i[-1], i[1:-1]) if last else (i[0], i[1], i[2:])

    def pixel(n: Expr, c: Expr, at: Sequence[Expr]) -> Expr:
        if padding == "zeros":
            return cast(wide, element_or_zero(x, (n, c), at, behind=int(last)))
        if padding == "border":
            inside = [minimum(maximum(p, 0), e - 1) for p, e in zip(at, image, strict=True)]
        else:
            inside = [mirrored_index(p, e, not align) for p, e in zip(at, image, strict=True)]
        return cast(wide, x[(n, *inside, c) if last else (n, c, *inside)])

    if mode == "nearest":

        def nearest(*i: Expr) -> Expr:
            n, c, o = parts(i)
            return cast(x.dtype, pixel(n, c, [integral(points[(n, *o, d)]) for d in range(rank)]))

        return compute(shape, nearest, "grid_sample", axes)
    count, first, weight = (2, 0, linear_weight) if mode == "linear" else (4, -1, cubic_weight)
    taps = [reduce_axis(count, f"t{d}") for d in range(rank)]

    def weighted(*i: Expr) -> Reduction:
        n, c, o = parts(i)
        at: list[Expr] = []
        factor: Expr | None = None
        for d, tap in enumerate(taps):
            v = points[(n, *o, d)]
            low, offset = unary("floor", v), tap.var + first
            part = weight(v - low - cast(wide, offset))
            factor = part if factor is None else factor * part
            at.append(integral(low) + offset)
        assert factor is not None
        return sum_(pixel(n, c, at) * factor, taps)

    total = compute(shape, weighted, "grid_sum", axes)
    return total if wide is x.dtype else compute(shape, lambda *i: cast(x.dtype, total[i]), "grid_sample", axes)


def _point(v: Expr, extent: int, mode: str, padding: str, align: bool) -> Expr:
    """A coordinate of -1..1 in elements, where it was padded brought back inside."""
    v = (v + 1) / 2 * (extent - 1) if align else ((v + 1) * extent - 1) / 2
    if mode == "nearest":
        v = unary("round", v)
    low, high = (0.0, extent - 1.0) if align else (-0.5, extent - 0.5)
    if padding == "zeros":
        return kept(v, -FARTHEST, extent + FARTHEST)
    inside = (v >= low) & (v <= high)
    return select(inside, v, kept(v, 0, extent - 1) if padding == "border" else mirrored(v, low, high))


@operator("affine_grid", operands="theta", size=Needed.integers, align_corners=False)
def affine_grid(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """theta (N, rank, rank + 1) applied to the centres of the elements of an image: (N, *size, rank).

    Coordinates are -1..1, innermost first; with `align_corners`, these are the centres of the outermost elements.
    """
    (theta,) = inputs
    floating("affine_grid", theta)
    size = integers("affine_grid", attrs, "size", None, 1)
    rank, align = len(size), flag("affine_grid", attrs, "align_corners")
    fits = theta.shape[1:] == (rank, rank + 1)
    require(fits, f"affine_grid: theta of shape {theta.shape} is no (N, {rank}, {rank + 1})")
    wide = working_dtype(theta)

    def coordinate(o: Expr, extent: int) -> Expr:
        if align and extent == 1:
            return const(-1, wide)
        step = 2 / (extent - 1) if align else 2 / extent
        return cast(wide, o) * step + (-1 if align else step / 2 - 1)

    def body(*i: Expr) -> Expr:
        total = cast(wide, theta[i[0], i[-1], rank])
        for d, extent in enumerate(size):
            total = total + cast(wide, theta[i[0], i[-1], rank - 1 - d]) * coordinate(i[d + 1], extent)
        return cast(theta.dtype, total)

    return compute((theta.shape[0], *size, rank), body, "affine_grid")
