"""Images read at points, windows put together again, regions of interest."""

from __future__ import annotations

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.windows import explicit_pads, per_axis
from autotune.ops.workload import AttrValue

MODES = {"bilinear": "linear", "bicubic": "cubic"}  # their names before opset 20


@converts("GridSample")
def grid_sample(node: OnnxNode) -> str:
    mode = node.attr_string("mode", "linear")
    return node.emit(
        "grid_sample",
        node.input(0),
        node.input(1),
        mode=MODES.get(mode, mode),
        padding=node.attr_string("padding_mode", "zeros"),
        align_corners=node.attr_flag("align_corners"),
    )


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
    """The bias is an `add`."""
    rank = node.rank() - 2
    kernel = node.shape(1)[2:]
    if rank < 1 or node.attr_ints("kernel_shape", kernel) != kernel:
        raise ModelError(f"{node.label}: kernel_shape contradicts the weight of shape {node.shape(1)}")
    operands = [node.input(n) for n in (0, 1, 2, 4) if n < 4 or node.given(4)]
    result = node.emit(
        "deform_conv",
        *operands,
        groups=node.attr_int("group", 1),
        offset_groups=node.attr_int("offset_group", 1),
        **_windows(node, rank),
    )
    if not node.given(3):
        return result
    if node.shape(3) != node.shape(1)[:1]:
        raise ModelError(f"{node.label}: bias of shape {node.shape(3)}, {node.shape(1)[0]} outputs")
    return node.emit("add", result, node.reshaped(node.input(3), (1, *node.shape(3), *(1,) * rank)))


def _windows(node: OnnxNode, rank: int) -> dict[str, AttrValue]:
    stride, dilation = per_axis(node, "strides", rank), per_axis(node, "dilations", rank)
    return {"stride": stride, "dilation": dilation, "pad": explicit_pads(node, rank)}
