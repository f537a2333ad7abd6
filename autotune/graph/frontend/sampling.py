"""Images read at points, windows put together again, regions of interest."""

from __future__ import annotations

import math

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.windows import explicit_pads, per_axis
from autotune.ops.workload import AttrValue

MODES = {"bilinear": "linear", "bicubic": "cubic"}  # their names before opset 20
MANY_CHANNELS = 3  # from here on, the channels of a point are worth a vector of their own


@converts("GridSample")
def grid_sample(node: OnnxNode) -> str:
    """Many channels are sampled with the channels last: those of a point are one vector, whatever the points are."""
    mode = node.attr_string("mode", "linear")
    rank = node.rank()
    last = rank >= 3 and node.shape()[1] >= MANY_CHANNELS
    x = node.input(0)
    sampled = node.emit(
        "grid_sample",
        node.emit("transpose", x, perm=(0, *range(2, rank), 1)) if last else x,
        node.input(1),
        mode=MODES.get(mode, mode),
        padding=node.attr_string("padding_mode", "zeros"),
        align_corners=node.attr_flag("align_corners"),
        channels_last=last,
    )
    return node.emit("transpose", sampled, perm=(0, rank - 1, *range(1, rank - 1))) if last else sampled


@converts("AffineGrid")
def affine_grid(node: OnnxNode) -> str:
    size = node.constant_ints(1, "the size")
    if len(size) < 3 or size[0] != node.shape()[:1][0]:
        raise ModelError(f"{node.label}: size {size} for theta of shape {node.shape()}")
    return node.emit("affine_grid", node.input(0), size=size[2:], align_corners=node.attr_flag("align_corners"))


@converts("RoiAlign")
def roi_align(node: OnnxNode) -> str:
    """Before opset 16, coordinates were of centres of elements."""
    usual = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    coordinates = node.attr_string("coordinate_transformation_mode", usual)
    if coordinates not in ("half_pixel", "output_half_pixel"):
        raise ModelError(f"{node.label}: unknown coordinate_transformation_mode '{coordinates}'")
    node.must_lie(node.input(2), (0,), node.shape()[:1], "the image of a region")
    return node.emit(
        "roi_align",
        *(node.input(n) for n in range(3)),
        bins=(node.attr_int("output_height", 1), node.attr_int("output_width", 1)),
        mode=node.attr_string("mode", "avg"),
        ratio=node.attr_int("sampling_ratio", 0),
        scale=node.attr_float("spatial_scale", 1.0),
        half_pixel=coordinates == "half_pixel",
    )


@converts("MaxRoiPool")
def max_roi_pool(node: OnnxNode) -> str:
    bins = node.attr_ints("pooled_shape") or ()
    return node.emit(
        "max_roi_pool", node.input(0), node.input(1), bins=bins, scale=node.attr_float("spatial_scale", 1.0)
    )


@converts("Col2Im")
def col2im(node: OnnxNode) -> str:
    image, kernel = node.constant_ints(1, "the image's shape"), node.constant_ints(2, "the block's shape")
    if len(image) != len(kernel) or not image:
        raise ModelError(f"{node.label}: image {image} and block {kernel} have different dimensions")
    return node.emit("col2im", node.input(0), image=image, kernel=kernel, **_windows(node, len(image)))


@converts("DeformConv")
def deform_conv(node: OnnxNode) -> str:
    """Shifted windows times the weight; the bias is an `add`."""
    rank = node.rank() - 2
    kernel = node.shape(1)[2:]
    if rank < 1 or node.attr_ints("kernel_shape", kernel) != kernel:
        raise ModelError(f"{node.label}: kernel_shape contradicts the weight of shape {node.shape(1)}")
    result = _deform_product(node, rank, kernel)
    if not node.given(3):
        return result
    if node.shape(3) != node.shape(1)[:1]:
        raise ModelError(f"{node.label}: bias of shape {node.shape(3)}, {node.shape(1)[0]} outputs")
    return node.emit("add", result, node.reshaped(node.input(3), (1, *node.shape(3), *(1,) * rank)))


def _deform_product(node: OnnxNode, rank: int, kernel: tuple[int, ...]) -> str:
    """The convolution as a matrix product: channels come last, so that those of a shifted point are one vector."""
    (n, c, *_), (filters, depth, *_) = node.shape(0), node.shape(1)
    groups, shifts = node.attr_int("group", 1), node.attr_int("offset_group", 1)
    divides = groups >= 1 and shifts >= 1 and filters % groups == 0 and depth * groups == c and c % shifts == 0
    if not divides:
        raise ModelError(
            f"{node.label}: {c} channels, weight of shape {node.shape(1)}, {groups} groups, {shifts} of offsets"
        )
    x = node.transposed(node.input(0), (0, *range(2, rank + 2), 1))
    rest = [node.input(position) for position in (2, 4) if position == 2 or node.given(4)]
    windows = node.emit("deform_windows", x, *rest, kernel=kernel, groups=shifts, **_windows(node, rank))
    wide, counts = node.builder.values[windows].dtype, node.builder.values[windows].shape[1 : rank + 1]
    points, taps = math.prod(counts), math.prod(kernel)
    weight = node.reshaped(node.input(1), (groups, filters // groups, depth, taps))
    weight = node.reshaped(node.transposed(weight, (0, 3, 2, 1)), (groups, taps * depth, filters // groups))
    if wide != node.value().dtype:
        weight = node.emit("cast", weight, to=wide)
    if groups == 1:
        windows = node.reshaped(windows, (n, points, taps * depth))
        weight = node.reshaped(weight, (taps * depth, filters))
    else:
        windows = node.reshaped(windows, (n, points, taps, groups, depth))
        windows = node.reshaped(node.transposed(windows, (0, 3, 1, 2, 4)), (n, groups, points, taps * depth))
    product = node.emit("matmul", windows, weight, trans_a=False, trans_b=False)
    product = node.reshaped(product, (n, groups, points, filters // groups))
    product = node.reshaped(node.transposed(product, (0, 1, 3, 2)), (n, filters, *counts))
    return product if wide == node.value().dtype else node.emit("cast", product, to=node.value().dtype)


def _windows(node: OnnxNode, rank: int) -> dict[str, AttrValue]:
    stride, dilation = per_axis(node, "strides", rank), per_axis(node, "dilations", rank)
    return {"stride": stride, "dilation": dilation, "pad": explicit_pads(node, rank)}
