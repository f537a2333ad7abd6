"""Scales after a convolution or matrix product move into its weights.

requires: merge_affine has run (scales come before shifts).
ensures: no convolution or matmul with constant weights, read once, is followed by a scale per output channel.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.affine import along_axis, constant_operand
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.conv import CONVOLUTIONS
from autotune.ops.conv_transpose import TRANSPOSED

WEIGHTED = frozenset({*CONVOLUTIONS, *TRANSPOSED, "matmul"})


def fold_scale(graph: Graph) -> Graph:
    """`conv2d(x, w) * s` --> `conv2d(x, w * s)`, and the same for other convolutions and matmul."""
    return rewrite(graph, _folded, ("mul",))


def _folded(sweep: Sweep, node: Node) -> str | None:
    scale = constant_operand(sweep, node)
    producer = sweep.producers.get(scale.other) if scale else None
    if scale is None or producer is None or producer.op not in WEIGHTED:
        return None
    weight = sweep.array(producer.inputs[1])
    if weight is None or not sweep.sole_use(producer.name):
        return None
    rank = len(node.output.shape)
    per_channel = along_axis(scale.array, rank - 1 if producer.op == "matmul" else 1, rank)
    if per_channel is None or weight.ndim < 2 or weight.dtype != per_channel.dtype:
        return None
    scaled = sweep.constant(_scaled(producer, weight, per_channel), producer.inputs[1])
    return sweep.emit(node, producer.op, (producer.inputs[0], scaled), **dict(producer.attrs))


def _scaled(producer: Node, weight: Array, per_channel: Array) -> Array:
    """Each output channel of the weight times its scale: one rounding, as in float64 rounded to the weight's dtype."""
    if producer.op in CONVOLUTIONS:
        per_channel = per_channel.reshape(-1, *(1,) * (weight.ndim - 1))
    elif producer.op in TRANSPOSED:  # inputs by outputs per group: every input of a group has its group's scales
        by_group = per_channel.reshape(-1, weight.shape[1] if per_channel.size > 1 else 1)
        per_channel = np.repeat(by_group, weight.shape[0] // len(by_group), axis=0)
        per_channel = per_channel.reshape(*per_channel.shape, *(1,) * (weight.ndim - 2))
    elif producer.attr("trans_b"):
        per_channel = per_channel.reshape(-1, 1)
    with np.errstate(all="ignore"):  # infinities and NaNs of the model are the model's
        return np.multiply(weight, per_channel)
