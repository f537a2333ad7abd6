"""Resize and its predecessor Upsample."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts


@converts("Resize")
def resize(node: OnnxNode) -> str:
    """Scales alone in opset 10; a region, scales or sizes since; of some axes only since opset 18."""
    if node.opset < 11:
        return _upsampled(node, _floats(node, 1, "the scales"), "simple")
    rank, mode = node.rank(), node.attr_string("mode", "nearest")
    axes = tuple(node.axis(a, rank) for a in node.attr_ints("axes") or range(rank))
    if len(set(axes)) != len(axes):
        raise ModelError(f"{node.label}: axes {axes} repeat an axis")
    sizes, scales = list(node.shape()), [1.0] * rank
    if node.given(3) and 0 not in node.shape(3):
        wanted = node.constant_ints(3, "the sizes")
        if len(wanted) != len(axes) or min(wanted) < 0:
            raise ModelError(f"{node.label}: sizes {wanted} for the axes {axes}")
        _by_sizes(node, axes, wanted, sizes, scales)
    else:
        factors = _floats(node, 2, "the scales")
        _by_scales(node, axes, factors, sizes, scales)
    coordinates = node.attr_string("coordinate_transformation_mode", "half_pixel")
    roi: tuple[float, ...] = ()
    if coordinates == "tf_crop_and_resize":
        given = _floats(node, 1, "the region")
        if len(given) != 2 * len(axes):
            raise ModelError(f"{node.label}: region {given} for the axes {axes}")
        ends = [0.0] * rank + [1.0] * rank
        for n, axis in enumerate(axes):
            ends[axis], ends[axis + rank] = given[n], given[n + len(axes)]
        roi = tuple(ends)
    return node.emit(
        "resize",
        node.input(0),
        sizes=tuple(sizes),
        scales=tuple(scales),
        mode=mode,
        coordinates=coordinates,
        rounding=node.attr_string("nearest_mode", "round_prefer_floor"),
        cubic_a=node.attr_float("cubic_coeff_a", -0.75),
        antialias=node.attr_flag("antialias"),
        exclude_outside=node.attr_flag("exclude_outside"),
        extrapolation=node.attr_float("extrapolation_value", 0.0),
        roi=roi,
    )


@converts("Upsample")
def upsample(node: OnnxNode) -> str:
    """Two attributes in opset 1, one attribute from 7 on, an input from 9 on."""
    factors: tuple[float, ...]
    if node.opset < 7:
        factors = (1.0, 1.0, node.attr_float("height_scale", 1.0), node.attr_float("width_scale", 1.0))
    else:
        factors = (node.attr_floats("scales") or ()) if node.opset < 9 else _floats(node, 1, "the scales")
    return _upsampled(node, factors, "floor")


def _upsampled(node: OnnxNode, factors: Sequence[float], rounding: str) -> str:
    """The first form of resizing: every result is taken from where it lies divided by the scale."""
    sizes, scales = list(node.shape()), [1.0] * node.rank()
    _by_scales(node, tuple(range(node.rank())), factors, sizes, scales)
    mode = node.attr_string("mode", "nearest")
    return node.emit(
        "resize",
        node.input(0),
        sizes=tuple(sizes),
        scales=tuple(scales),
        mode="linear" if mode == "bilinear" else mode,
        coordinates="asymmetric",
        rounding=rounding,
        cubic_a=-0.75,
        antialias=False,
        exclude_outside=False,
        extrapolation=0.0,
        roi=(),
    )


def _by_scales(
    node: OnnxNode, axes: tuple[int, ...], factors: Sequence[float], sizes: list[int], scales: list[float]
) -> None:
    if len(factors) != len(axes) or not all(0 < factor < math.inf for factor in factors):
        raise ModelError(f"{node.label}: scales {tuple(factors)} for the axes {axes} must be positive")
    for axis, factor in zip(axes, factors, strict=True):
        # In f32, as exporters do: 30 times the f32 next to 2.3 is 69 there, and less than 69 in f64.
        sizes[axis], scales[axis] = int(np.float32(factor) * np.float32(sizes[axis])), factor


def _by_sizes(
    node: OnnxNode, axes: tuple[int, ...], wanted: Sequence[int], sizes: list[int], scales: list[float]
) -> None:
    """The scales that follow from sizes; a policy keeps the ratio of the sides, and the sizes are then limits."""
    policy = node.attr_string("keep_aspect_ratio_policy", "stretch")
    for axis, size in zip(axes, wanted, strict=True):
        if not sizes[axis] and size:
            raise ModelError(f"{node.label}: axis {axis} has no elements to make {size} of")
        scales[axis] = size / sizes[axis] if size else 1.0
        if policy == "stretch":
            sizes[axis] = size
    if policy == "stretch":
        return
    if policy not in ("not_larger", "not_smaller"):
        raise ModelError(f"{node.label}: unknown keep_aspect_ratio_policy '{policy}'")
    common = (min if policy == "not_larger" else max)(scales[axis] for axis in axes)
    for axis in axes:
        sizes[axis], scales[axis] = int(common * sizes[axis] + 0.5), common


def _floats(node: OnnxNode, position: int, what: str) -> tuple[float, ...]:
    """A constant input of real numbers; empty where it is left out."""
    if not node.given(position):
        return ()
    array = node.constant(position, what)
    if array.dtype.kind != "f":
        raise ModelError(f"{node.label}: {what} must be real numbers, not {array.dtype}")
    return tuple(float(item) for item in array.reshape(-1))
