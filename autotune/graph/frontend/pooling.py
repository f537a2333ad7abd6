"""Pools of any rank. Global pools are reductions over the spatial axes."""

from __future__ import annotations

import math
from dataclasses import replace

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.windows import Window, explicit_pads, per_axis, read_window
from autotune.ops.workload import AttrValue


@converts("MaxPool", "AveragePool", "LpPool")
def pool(node: OnnxNode) -> tuple[str, ...]:
    """Values, and for MaxPool where they were found, if somebody asks.

    Data of one dimension less is an image without a batch: torch has such pools, and its older exporter writes them.
    """
    kernel, shape = node.attr_ints("kernel_shape", ()) or (), node.shape()
    batched = len(kernel) != len(shape) - 1
    window = read_window(node, kernel, shape[2:] if batched else shape[1:], crops=True)
    x = node.input(0) if batched else node.reshaped(node.input(0), (1, *shape))
    positions = node.wanted(1)
    if min(window.pad) < 0:
        if positions:
            raise UnsupportedError(f"{node.label}: positions in an image that {node.attr_string('auto_pad', '')} crops")
        x, window = _cropped(node, x, window)
    attrs: dict[str, AttrValue] = {
        "kernel": window.kernel,
        "stride": window.stride,
        "pad": window.pad,
        "dilation": window.dilation,
        "ceil_mode": node.attr_flag("ceil_mode"),
    }
    if node.op == "AveragePool":
        results = [node.emit("avg_pool", x, count_include_pad=node.attr_flag("count_include_pad"), **attrs)]
    elif node.op == "LpPool":
        results = [node.emit("lp_pool", x, p=_exponent(node), **attrs)]
    else:
        results = [node.emit("max_pool", x, **attrs)]
    if positions:
        results.append(node.emit("max_pool_index", x, column_major=node.attr_flag("storage_order"), **attrs))
    return tuple(results if batched else (node.reshaped(r, node.builder.values[r].shape[1:]) for r in results))


def _cropped(node: OnnxNode, x: str, window: Window) -> tuple[str, Window]:
    """The part of the images that negative padding leaves, and the window with what padding remains."""
    shape, rank = node.builder.values[x].shape, len(window.kernel)
    ranges = [range(extent) for extent in shape]
    for d in range(rank):
        before, after = (max(0, -window.pad[side]) for side in (d, d + rank))
        ranges[d + 2] = range(before, shape[d + 2] - after)
    return node.sliced(x, ranges), replace(window, pad=tuple(max(0, p) for p in window.pad))


def _exponent(node: OnnxNode) -> float:
    """p: a float in opset 1, an integer since."""
    p = node.attr_float("p", 2.0) if node.opset < 2 else float(node.attr_int("p", 2))
    if not p > 0:
        raise ModelError(f"{node.label}: p={p} must be positive")
    return p


@converts("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: OnnxNode) -> str:
    op = "reduce_mean" if node.op == "GlobalAveragePool" else "reduce_max"
    return node.emit(op, node.input(0), axes=tuple(range(2, node.rank())), keepdims=True)


@converts("GlobalLpPool")
def global_lp_pool(node: OnnxNode) -> str:
    """(sum of |x| ** p) ** (1 / p) over each image, in f32 at least."""
    p, dtype = _exponent(node), node.value().dtype
    wide = "f64" if dtype == "f64" else "f32"
    x = node.input(0) if dtype == wide else node.emit("cast", node.input(0), to=wide)
    size = node.emit("abs", x) if p != 2 else x
    powers = node.emit("mul", x, x) if p == 2 else size if p == 1 else node.emit("pow", size, node.scalar(p, x))
    total = node.emit("reduce_sum", powers, axes=tuple(range(2, node.rank())), keepdims=True)
    if p != 1:
        total = node.emit("sqrt", total) if p == 2 else node.emit("pow", total, node.scalar(1 / p, x))
    return total if dtype == wide else node.emit("cast", total, to=dtype)


@converts("MaxUnpool")
def max_unpool(node: OnnxNode) -> str:
    """Zeros with every element where MaxPool found it; a larger output has zeros behind."""
    rank, shape = node.rank() - 2, node.shape()
    kernel = node.attr_ints("kernel_shape", ()) or ()
    if rank < 1 or len(kernel) != rank or node.shape(1) != shape:
        raise ModelError(f"{node.label}: kernel {kernel} and indices {node.shape(1)} do not fit data of shape {shape}")
    stride, pads = per_axis(node, "strides", rank), explicit_pads(node, rank)
    sides = [(shape[d + 2] - 1) * stride[d] - pads[d] - pads[d + rank] + kernel[d] for d in range(rank)]
    whole = (*shape[:2], *sides)
    wanted = node.constant_ints(2, "the output's shape") if node.given(2) else whole
    if len(wanted) != len(whole) or any(not 0 <= a <= b for a, b in zip(whole, wanted, strict=False)):
        raise ModelError(f"{node.label}: elements of shape {whole} do not fit into an output of shape {wanted}")
    node.must_lie(node.input(1), (0,), (math.prod(whole),), "a place")
    zeros = node.constant_like(0, node.input(0), (math.prod(whole),))
    flat = [node.reshaped(node.input(n), (math.prod(shape),)) for n in (1, 0)]
    result = node.reshaped(node.emit("scatter_elements", zeros, *flat, axis=0, reduction="none"), whole)
    if wanted == whole:
        return result
    behind = tuple(a - b for a, b in zip(wanted, whole, strict=True))
    return node.emit("pad", result, pads=(*(0,) * len(whole), *behind), value=0.0)
