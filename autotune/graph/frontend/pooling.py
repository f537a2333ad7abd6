"""Pools of any rank. Global pools are reductions over the spatial axes."""

from __future__ import annotations

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.windows import read_window
from autotune.ops.workload import AttrValue


@converts("MaxPool", "AveragePool", "LpPool")
def pool(node: OnnxNode) -> tuple[str, ...]:
    """Values, and for MaxPool where they were found, if somebody asks."""
    window = read_window(node, node.attr_ints("kernel_shape", ()) or ())
    attrs: dict[str, AttrValue] = {
        "kernel": window.kernel,
        "stride": window.stride,
        "pad": window.pad,
        "dilation": window.dilation,
        "ceil_mode": bool(node.attr_int("ceil_mode", 0)),
    }
    x = node.input(0)
    if node.op == "AveragePool":
        return (node.emit("avg_pool", x, count_include_pad=bool(node.attr_int("count_include_pad", 0)), **attrs),)
    if node.op == "LpPool":
        return (node.emit("lp_pool", x, p=_exponent(node), **attrs),)
    values = node.emit("max_pool", x, **attrs)
    if len(node.proto.output) < 2 or not node.proto.output[1]:
        return (values,)
    column_major = bool(node.attr_int("storage_order", 0))
    return values, node.emit("max_pool_index", x, column_major=column_major, **attrs)


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
