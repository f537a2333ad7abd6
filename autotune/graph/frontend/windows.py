"""Attributes shared by convolutions and pools: kernel, stride, dilation, padding."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode


@dataclass(frozen=True, slots=True)
class Window:
    """A window, one entry per spatial dimension. `pad` is all that is before, then all that is after."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[int, ...]


def read_window(
    node: OnnxNode, kernel: tuple[int, ...], extents: tuple[int, ...] | None = None, *, crops: bool = False
) -> Window:
    """Window of a node over its first input; auto_pad becomes explicit padding.

    Args:
        extents: of the image, where they are not all dimensions of the input after the second.
        crops: SAME with strides that leave gaps is negative padding, as the specification of pools has it; else none.
    """
    extents = node.shape()[2:] if extents is None else extents
    rank = len(extents)
    if rank < 1 or len(kernel) != rank:
        raise ModelError(f"{node.label}: kernel {kernel} does not fit data of shape {node.shape()}")
    stride = per_axis(node, "strides", rank)
    dilation = per_axis(node, "dilations", rank)
    if min(*kernel, *stride, *dilation) < 1:
        raise ModelError(f"{node.label}: kernel {kernel}, strides {stride} and dilations {dilation} must be positive")
    begin, end = _padding(node, extents, kernel, stride, dilation, crops=crops)
    return Window(kernel, stride, dilation, (*begin, *end))


def transposed_window(node: OnnxNode, kernel: tuple[int, ...]) -> tuple[Window, tuple[int, ...]]:
    """Window of a transposed convolution and what is added behind each axis of its result (output_padding).

    `pad` is what is cut off the result; negative behind it where an output_shape asks for more than there is.
    """
    rank = len(kernel)
    stride, dilation = per_axis(node, "strides", rank), per_axis(node, "dilations", rank)
    if min(*kernel, *stride, *dilation) < 1:
        raise ModelError(f"{node.label}: kernel {kernel}, strides {stride} and dilations {dilation} must be positive")
    extra = node.attr_ints("output_padding") or (0,) * rank
    if len(extra) != rank or min(extra) < 0:
        raise ModelError(f"{node.label}: output_padding {extra} must be {rank} non-negative integers")
    mode, wanted = node.attr_string("auto_pad", "NOTSET"), node.attr_ints("output_shape")
    if wanted is None and mode not in ("SAME_UPPER", "SAME_LOWER"):
        begin, end = _padding(node, node.shape()[2:], kernel, stride, dilation)
    else:
        wanted = wanted or tuple(e * s for e, s in zip(node.shape()[2:], stride, strict=True))
        if len(wanted) != rank:
            raise ModelError(f"{node.label}: output_shape {wanted} must have {rank} entries")
        axes = zip(node.shape()[2:], kernel, stride, dilation, extra, wanted, strict=True)
        total = [s * (e - 1) + x + (k - 1) * d + 1 - w for e, k, s, d, x, w in axes]
        # What is missing is put behind; of an odd padding, SAME_UPPER puts the larger half behind, all others before.
        begin = tuple((max(t, 0) + (mode != "SAME_UPPER")) // 2 for t in total)
        end = tuple(t - b for t, b in zip(total, begin, strict=True))
    return Window(kernel, stride, dilation, (*begin, *end)), extra


def per_axis(node: OnnxNode, name: str, rank: int) -> tuple[int, ...]:
    """An attribute of one integer per spatial dimension, 1 where it is left out."""
    values = node.attr_ints(name) or (1,) * rank
    if len(values) != rank:
        raise ModelError(f"{node.label}: '{name}' has {len(values)} entries, {rank} are needed")
    return values


def explicit_pads(node: OnnxNode, rank: int) -> tuple[int, ...]:
    """The attribute `pads`: non-negative, all before and then all after."""
    pads = node.attr_ints("pads") or (0,) * (2 * rank)
    if len(pads) != 2 * rank or min(pads) < 0:
        raise ModelError(f"{node.label}: pads {pads} must be {2 * rank} non-negative integers")
    return pads


def _padding(
    node: OnnxNode,
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    *,
    crops: bool = False,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after each spatial axis."""
    rank = len(kernel)
    mode = node.attr_string("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = explicit_pads(node, rank)
        return pads[:rank], pads[rank:]
    if mode == "VALID":
        return (0,) * rank, (0,) * rank
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise ModelError(f"{node.label}: unknown auto_pad '{mode}'")
    begin, end = [], []
    for extent, k, s, d in zip(extents, kernel, stride, dilation):
        total = ((extent + s - 1) // s - 1) * s + d * (k - 1) + 1 - extent
        total = total if crops else max(total, 0)
        # Of an odd padding SAME_UPPER puts the larger half behind; what is cut off comes off there in any case.
        begin.append((total + (mode == "SAME_LOWER" or total < 0)) // 2)
        end.append(total - begin[-1])
    return tuple(begin), tuple(end)
