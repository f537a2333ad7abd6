"""Sizes of a convolution and the layouts of its operands, shared by the convolution templates."""

from __future__ import annotations

from collections.abc import Container

from autotune.ops.conv import CONVOLUTIONS, Conv
from autotune.ops.registry import lookup
from autotune.ops.window import taps_inside
from autotune.ops.workload import TensorType, Workload
from autotune.schedule import Schedule
from autotune.schedule.dot_products import DOT_PRODUCTS
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

ROW_BYTES = 64
"""Of a tile register."""


def sizes(workload: Workload) -> Conv:
    """Sizes of the workload's convolution."""
    anchor = workload.anchor
    assert anchor is not None
    types = workload.types()
    x, weight = (types[i].shape for i in anchor.inputs)
    return Conv.of(anchor.op, x, weight, dict(anchor.attrs))


def halo(p: Conv) -> tuple[tuple[int, int], ...]:
    """Zero border of the input that lets every tap be read without a test."""
    sides = zip(p.image, p.out, p.window, p.stride, p.dilation, p.pad, strict=False)
    return (
        (0, 0),
        (0, 0),
        *(
            (before, max((count - 1) * stride + (window - 1) * dilation - before - (extent - 1), 0))
            for extent, count, window, stride, dilation, before in sides
        ),
    )


WORTH_SKIPPING = 0.03
"""Share of the taps that must lie in padding for tests to pay."""


def padded_share(p: Conv) -> float:
    """The share of rows of taps that lie outside the image: above or below it, before or behind it."""
    within = 1.0
    for image, out, window, stride, dilation, before in zip(
        p.image[:-1], p.out[:-1], p.window[:-1], p.stride, p.dilation, p.pad, strict=False
    ):
        within *= taps_inside(image, out, window, stride, dilation, before) / (out * window)
    return 1.0 - within


def padded_tiles(p: Conv, width: int) -> float:
    """The share of columns of taps that lie outside the image for all of a tile of `width` outputs."""
    (image, out, window), stride, dilation = (p.w, p.ow, p.s), p.stride[-1], p.dilation[-1]
    starts, before = range(0, out, width), p.pad[p.rank - 1]

    def beyond(start: int, tap: int) -> bool:
        first, last = (o * stride + tap * dilation - before for o in (start, min(start + width, out) - 1))
        return last < 0 or first >= image

    return sum(beyond(o, s) for o in starts for s in range(window)) / (len(starts) * window)


def blocked_activations(channels: int, lanes: int, rank: int = 4, dtype: str = "f32") -> Layout:
    """NCHW in blocks of one vector of channels; few channels (an image) stay as they are.

    Half floats lie in blocks of as many bytes, which is a row of a tile register, where channels fill them or need one.
    """
    wide = lanes * DType.f32.bytes // DType(dtype).bytes
    half = DType(dtype).is_float and wide == 2 * lanes and (channels % wide == 0 or lanes < channels < wide)
    return Layout.blocked(rank, [(1, wide if half else lanes)]) if channels >= lanes else Layout.row_major(rank)


def image_layout(operand: TensorType, target: Target) -> Layout:
    """Of channels in the blocks that all who make and read such images agree on."""
    return blocked_activations(operand.shape[1], channel_block(operand, target), len(operand.shape), operand.dtype)


def channel_block(operand: TensorType, target: Target) -> int:
    """Channels of an image of bytes that lie together: a vector of sums, or as many vectors as fill a row of a tile."""
    lanes, channels, dtype = target.lanes(DType.f32.bytes), operand.shape[1], DType(operand.dtype)
    tiles = (d for d in DOT_PRODUCTS.values() if d.tiled and dtype in (d.left, d.right))
    if dtype.bytes > 1 or not any(d.runs(target.features, lanes) for d in tiles):
        return lanes
    whole = [n for n in range(lanes, ROW_BYTES + 1, lanes) if channels % n == 0]
    return max(whole, default=lanes)


def operand_layouts(workload: Workload, lanes: int, channels: int) -> dict[str, Layout]:
    """Layouts of the epilogue's operands and the output: blocked like the result."""
    types = workload.types()
    rank = len(types[-1].shape)
    out = {"out0": blocked_activations(channels, lanes, rank, types[workload.outputs[0]].dtype)}
    for n, i in enumerate(workload.inputs):
        if len(i.type.shape) == rank and i.type.shape[1] == channels:
            out[f"in{n}"] = blocked_activations(channels, lanes, rank, i.type.dtype)
    return out


def plain_conv(workload: Workload) -> bool:
    """An f32 convolution of two operands of the kernel, not empty, with nothing but elementwise operators behind it."""
    return fused_f32(workload, CONVOLUTIONS)


def fused_f32(workload: Workload, anchors: Container[str]) -> bool:
    """The same of any of some operators."""
    if not fused_anchor(workload, anchors):
        return False
    anchor, types = workload.anchor, workload.types()
    return anchor is not None and {types[i].dtype for i in anchor.inputs} == {"f32"}


def fused_anchor(workload: Workload, anchors: Container[str]) -> bool:
    """The same of any dtypes."""
    anchor = workload.anchor
    if anchor is None or anchor.op not in anchors or len(workload.outputs) != 1:
        return False
    if max(anchor.inputs) >= len(workload.inputs):
        return False
    others = all(n is anchor or lookup(n.op).elementwise for n in workload.nodes)
    types = workload.types()
    return others and all(min(types[n].shape, default=1) > 0 for n in (*anchor.inputs, len(types) - 1))


def has_room(s: Schedule, p: Conv, x: str, weight: str, block: int, filters: int = 0, sum_only: bool = False) -> bool:
    """Whether all memory exists that whole blocks of output channels touch.

    Args:
        s: a schedule with all operands' layouts.
        p: sizes.
        x: the activations, read at the channels of their group only.
        weight: the filters.
        block: output channels that are computed together.
        filters: dimension of the weight that is an output channel.
        sum_only: ask about what the sum reads, and not about the result and what is fused behind.
    """
    top = -(-p.k // block) * block
    operands = {x, weight} if sum_only else {t.name for t in s.compute.inputs} | set(s.compute.outputs)
    for t in s.state.tensors():
        place = filters if t.name == weight else len(t.shape) - p.rank - 1
        if t.name not in operands or place < 0:
            continue
        if t.name == x:
            needed = (top - 1) // (p.k // p.groups) * (p.c // p.groups) + p.c // p.groups if p.groups > 1 else 0
        else:
            needed = top if t.shape[place] == p.k else 0
        if s.state.layout(t).allocated(t.shape)[place][1] < needed:
            return False
    return True
