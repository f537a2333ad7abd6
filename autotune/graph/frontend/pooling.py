"""Pools. Global pools are reductions over the spatial axes."""

from __future__ import annotations

from autotune.errors import UnsupportedError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.windows import as_2d, from_2d, read_window, spatial_rank
from autotune.ops.workload import AttrValue


@converts("MaxPool", "AveragePool")
def pool(node: OnnxNode) -> str:
    if node.attr_int("storage_order", 0):
        raise UnsupportedError(f"{node.label}: storage_order=1")
    window = read_window(node, node.attr_ints("kernel_shape", ()) or ())
    attrs: dict[str, AttrValue] = {
        "kernel": window.kernel,
        "stride": window.stride,
        "pad": window.pad,
        "dilation": window.dilation,
        "ceil_mode": bool(node.attr_int("ceil_mode", 0)),
    }
    op = "max_pool2d"
    if node.op == "AveragePool":
        op, attrs["count_include_pad"] = "avg_pool2d", bool(node.attr_int("count_include_pad", 0))
    result = node.emit(op, as_2d(node, node.input(0)), **attrs)
    return from_2d(node, result, spatial_rank(node))


@converts("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: OnnxNode) -> str:
    op = "reduce_mean" if node.op == "GlobalAveragePool" else "reduce_max"
    return node.emit(op, node.input(0), axes=tuple(range(2, node.rank())), keepdims=True)
