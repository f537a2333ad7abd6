"""Attributes shared by convolutions and pools: kernel, stride, dilation, padding, and 1-D forms as 2-D."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode


@dataclass(frozen=True, slots=True)
class Window:
    """A window, one entry per spatial dimension. `pad` is all that is before, then all that is after."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[int, ...]

    def as_2d(self) -> Window:
        """A 1-D window as one of height 1; 2-D windows as they are."""
        if len(self.kernel) == 2:
            return self
        (before, after) = self.pad
        return Window((1, *self.kernel), (1, *self.stride), (1, *self.dilation), (0, before, 0, after))


def spatial_rank(node: OnnxNode) -> int:
    """1 or 2; other ranks are refused."""
    rank = node.rank() - 2
    if rank not in (1, 2):
        raise UnsupportedError(f"{node.label}: {rank} spatial dimensions (1 and 2 are supported)")
    return rank


def as_2d(node: OnnxNode, name: str) -> str:
    """(N, C, W) as (N, C, 1, W); 4-D values as they are."""
    shape = node.builder.values[name].shape
    return node.reshaped(name, (*shape[:2], 1, shape[2])) if len(shape) == 3 else name


def from_2d(node: OnnxNode, name: str, rank: int) -> str:
    """The inverse of `as_2d` for a result."""
    shape = node.builder.values[name].shape
    return node.reshaped(name, (*shape[:2], shape[3])) if rank == 1 else name


def read_window(node: OnnxNode, kernel: tuple[int, ...]) -> Window:
    """Window of a node over its first input; auto_pad becomes explicit padding."""
    rank = node.rank() - 2
    if rank < 1 or len(kernel) != rank:
        raise ModelError(f"{node.label}: kernel {kernel} does not fit data of shape {node.shape()}")
    stride = per_axis(node, "strides", rank)
    dilation = per_axis(node, "dilations", rank)
    if min(*kernel, *stride, *dilation) < 1:
        raise ModelError(f"{node.label}: kernel {kernel}, strides {stride} and dilations {dilation} must be positive")
    begin, end = _padding(node, kernel, stride, dilation)
    return Window(kernel, stride, dilation, (*begin, *end))


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
    node: OnnxNode, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
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
    for extent, k, s, d in zip(node.shape()[2:], kernel, stride, dilation):
        total = max(((extent + s - 1) // s - 1) * s + d * (k - 1) + 1 - extent, 0)
        small, large = total // 2, total - total // 2
        begin.append(small if mode == "SAME_UPPER" else large)
        end.append(large if mode == "SAME_UPPER" else small)
    return tuple(begin), tuple(end)
