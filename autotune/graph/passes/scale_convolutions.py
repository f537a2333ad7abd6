"""Convolutions that only scale become products.

requires: a verified graph.    ensures: no convolution with constant weights has one channel per group, one weight per
channel, stride 1 and no padding. Exporters write scale layers that way. As a product it merges with what scales and
shifts around it, is fused like them, and takes whatever layout its neighbours have.
"""

from __future__ import annotations

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.sweep import Sweep
from autotune.ops.conv import CONVOLUTIONS


def scale_convolutions(graph: Graph) -> Graph:
    """`conv2d(x, w (C, 1, 1, 1), groups=C)` --> `x * w (1, C, 1, 1)`, and the same of any rank."""
    sweep = Sweep(graph)
    for node in sweep:
        weight = sweep.array(node.inputs[1]) if node.op in CONVOLUTIONS else None
        if weight is None or not _only_scales(node, weight):
            sweep.keep(node)
            continue
        scale = sweep.constant(weight.reshape(1, *weight.shape[:1], *weight.shape[2:]), node.inputs[1])
        sweep.replace(node, sweep.emit(node, "mul", (node.inputs[0], scale)))
    return sweep.result()


def _only_scales(node: Node, weight: Array) -> bool:
    return (
        node.attr("groups") == weight.shape[0]
        and all(extent == 1 for extent in weight.shape[1:])
        and all(step == 1 for step in node.int_tuple("stride"))
        and not any(node.int_tuple("pad"))
    )
