"""Convolutions that only scale become products.

requires: a verified graph.    ensures: no convolution of floats with constant weights has one channel per group, one
weight per channel, stride 1 and no padding. Exporters write scale layers that way. As a product it merges with what
scales and shifts around it, is fused like them, and takes whatever layout its neighbours have.
"""

from __future__ import annotations

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.conv import CONVOLUTIONS


def scale_convolutions(graph: Graph) -> Graph:
    """`conv2d(x, w (C, 1, 1, 1), groups=C)` --> `x * w (1, C, 1, 1)`, and the same of any rank."""
    return rewrite(graph, _product, CONVOLUTIONS)


def _one_type(sweep: Sweep, node: Node) -> bool:
    """Not so of integers: a convolution widens the products of bytes, which may be signed in one operand only."""
    return all(sweep.values[name].dtype == node.output.dtype for name in node.inputs)


def _product(sweep: Sweep, node: Node) -> str | None:
    weight = sweep.array(node.inputs[1])
    if weight is None or not _only_scales(node, weight) or not _one_type(sweep, node):
        return None
    scale = sweep.constant(weight.reshape(1, *weight.shape[:1], *weight.shape[2:]), node.inputs[1])
    return sweep.emit(node, "mul", (node.inputs[0], scale))


def _only_scales(node: Node, weight: Array) -> bool:
    return (
        node.attr("groups") == weight.shape[0]
        and all(extent == 1 for extent in weight.shape[1:])
        and all(step == 1 for step in node.int_tuple("stride"))
        and not any(node.int_tuple("pad"))
    )
