"""Where the elements of a resized dimension come from: places and weights per result, computed while compiling.

Formulas are ONNX's (operator Resize), in float64; those of nearest elements in float32, as ONNX Runtime has them: which
element is taken at a tie, or where a point is an element but for rounding, depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Table

Array = npt.NDArray[Any]
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)  # fmt: skip
TIE = 1e-6  # so far from the middle between two elements, a point is still there: ONNX Runtime's
MAX_FACTOR = 8  # of upscaling and downscaling that places are an affine form of


@dataclass(frozen=True, slots=True)
class Dimension:
    """How one dimension is resized.

    Attributes:
        source: extent before.
        size: extent after.
        scale: the factor of the model, of which size / source may be a rounded form.
        coordinates: one of COORDINATES.
        roi: the part of the source that tf_crop_and_resize takes, as fractions.
    """

    source: int
    size: int
    scale: float
    coordinates: str
    roi: tuple[float, float] = (0.0, 1.0)

    @property
    def unchanged(self) -> bool:
        same = self.source == self.size and bool(np.isclose(self.scale, 1.0, 1e-9))
        return same and (self.coordinates != "tf_crop_and_resize" or self.roi == (0.0, 1.0))

    def origins(self) -> Array:
        """The point of the source that each result is taken from."""
        o, length = np.arange(self.size, dtype=np.float64), self.scale * self.source
        if self.coordinates == "align_corners":
            return np.zeros_like(o) if length == 1 else o * (self.source - 1) / (length - 1)
        if self.coordinates == "asymmetric":
            return o / self.scale
        if self.coordinates == "tf_crop_and_resize":
            share, first = self.roi[1] - self.roi[0], self.roi[0] * (self.source - 1)
            if length == 1:
                return np.full_like(o, share * (self.source - 1) / 2 + first)
            return o * share * (self.source - 1) / (length - 1) + first
        if self.coordinates == "pytorch_half_pixel" and length == 1:
            return np.full_like(o, -0.5)
        if self.coordinates == "tf_half_pixel_for_nn":
            return np.asarray((o + 0.5) / self.scale)
        shift = self.source / 2 * (1 - self.size / length) if self.coordinates == "half_pixel_symmetric" else 0.0
        return shift + (o + 0.5) / self.scale - 0.5

    def rounded_origins(self) -> Array:
        """`origins` as ONNX Runtime computes them, step by step in f32; lengths are those that the dimension has."""
        o, half, one = np.arange(self.size, dtype=np.float32), np.float32(0.5), np.float32(1)
        scale, length, last = np.float32(self.scale), np.float32(self.size), np.float32(self.source - 1)
        if self.coordinates == "align_corners":
            return np.zeros_like(o) if self.size == 1 else o * last / (length - one)
        if self.coordinates == "asymmetric":
            return np.asarray(o / scale)
        if self.coordinates == "tf_crop_and_resize":
            begin, end = (np.float32(share) for share in self.roi)
            if self.size == 1:
                return np.full_like(o, 0.5 * float(begin + end) * float(last))
            return np.asarray(begin * last + o * (end - begin) * last / (length - one))
        if self.coordinates == "half_pixel_symmetric":  # there in f64, but for the ratio of the lengths
            ratio = float(length / (scale * np.float32(self.source)))
            found = self.source / 2 * (1 - ratio) + (o.astype(np.float64) + 0.5) / float(scale) - 0.5
            return np.asarray(found.astype(np.float32))
        if self.coordinates == "pytorch_half_pixel" and self.size == 1:
            return np.zeros_like(o)
        middle = (o + half) / scale
        return np.asarray(middle if self.coordinates == "tf_half_pixel_for_nn" else middle - half)

    def beyond(self, *, rounded: bool) -> tuple[int, int] | None:
        """The results first..last-1 that come from inside the source, None when all do: tf_crop_and_resize only."""
        if self.coordinates != "tf_crop_and_resize":
            return None
        at = self.rounded_origins() if rounded else self.origins()
        within = np.flatnonzero((at >= 0) & (at <= self.source - 1))
        if len(within) == self.size:
            return None
        return (int(within[0]), int(within[-1]) + 1) if len(within) else (0, 0)


def nearest_places(d: Dimension, rounding: str) -> Array:
    """The source element of each result."""
    at = d.rounded_origins()
    low = np.floor(at)
    if rounding == "floor" or (rounding == "simple" and d.scale >= 1):
        chosen = low
    elif rounding in ("ceil", "simple"):
        chosen = np.ceil(at)
    else:
        tie, down = np.abs(at - low - np.float32(0.5)) < TIE, rounding == "round_prefer_floor"
        chosen = np.where(np.where(tie, down, at - low < 0.5), low, low + 1)
    return np.asarray(np.clip(chosen, 0, d.source - 1).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Taps:
    """result[o] = sum over t of weights[t, o] * source[places[t, o]]; places outside of the source have weight 0."""

    places: Array
    weights: Array


def linear_kernel(distance: Array) -> Array:
    return np.asarray(np.clip(1 - np.abs(distance), 0, 1))


def cubic_kernel(a: float) -> Callable[[Array], Array]:
    """Keys' cubic convolution."""

    def kernel(distance: Array) -> Array:
        x = np.abs(distance)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return kernel


def interpolated(
    d: Dimension, kernel: Callable[[Array], Array], radius: int, *, antialias: bool, exclude_outside: bool
) -> Taps:
    """Places and weights of an interpolation.

    Args:
        d: the dimension.
        kernel: weight at a distance, 0 from `radius` on.
        radius: 1 or 2.
        antialias: widen the kernel when shrinking.
        exclude_outside: elements outside of the source do not count; else the nearest inside stands for them.
    """
    at = d.origins()
    base = np.floor(at).astype(np.int64)
    shrink = min(d.scale, 1.0) if antialias else 1.0
    first = int(np.floor(-radius / shrink)) + 1
    offsets = np.arange(first, 2 - first)[:, None]
    places = base + offsets
    weights = kernel((offsets - (at - base)) * shrink)
    outside = (places < 0) | (places >= d.source)
    if antialias:
        weights = weights / weights.sum(0)
    if exclude_outside:
        weights = np.where(outside, 0.0, weights)
        total = weights.sum(0)
        weights = weights / np.where(total == 0, 1.0, total)
    if outside.all(0).any():
        return Taps(np.clip(places, 0, d.source - 1), weights)
    # What lies outside counts for the nearest element inside, which is one of the taps.
    merged = np.where(outside, 0.0, weights)
    columns = np.arange(d.size)
    for t in range(len(places)):
        lost = np.where(outside[t], weights[t], 0.0)
        home = np.clip(places[t], 0, d.source - 1) - places[0]
        np.add.at(merged, (np.clip(home, 0, len(places) - 1), columns), lost)
    used = np.flatnonzero(np.any(merged != 0, axis=1))
    return Taps(places[used], merged[used])


def affine_place(values: Array, o: Expr) -> Expr | None:
    """`values[o]` as (p * o + b) // q with small p and q, None when it is not of that form."""
    count = len(values)
    steps = np.arange(count)
    rise = int(values[-1] - values[0])
    for q in range(1, MAX_FACTOR + 1):
        for p in range(1, MAX_FACTOR + 1):
            if abs(p * (count - 1) - rise * q) > q:
                continue
            for b in range(int(values[0]) * q, int(values[0]) * q + q):
                if np.array_equal((p * steps + b) // q, values):
                    scaled = o * p if p > 1 else o
                    shifted = scaled + b if b else scaled
                    return shifted // q if q > 1 else shifted
    return None


def row(name: str, values: Array, o: Expr, dtype: DType) -> Table:
    """`values[o]`, of constants."""
    return Table(name, tuple(map(float, values)), (len(values),), (o,), dtype)


def dimensions(attrs: Mapping[str, Any], shape: Sequence[int]) -> list[Dimension]:
    """The dimensions of a resize of a tensor of `shape`."""
    rank, roi = len(shape), attrs["roi"]
    parts = [(float(roi[d]), float(roi[d + rank])) for d in range(rank)] if roi else [(0.0, 1.0)] * rank
    return [
        Dimension(n, size, float(scale), attrs["coordinates"], part)
        for n, size, scale, part in zip(shape, attrs["sizes"], attrs["scales"], parts, strict=True)
    ]
