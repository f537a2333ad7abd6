"""Scales and shifts before a convolution or matrix product move into its weights and behind it.

requires: merge_affine has run (scales come before shifts).
ensures: no convolution or matmul with constant weights reads a scale per channel that nobody else reads, nor a shift,
unless that is a bias, or zeros are put around what is shifted: these are not.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.affine import along_axis, constant_operand
from autotune.graph.passes.fold_scale import WEIGHTED
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.conv import CONVOLUTIONS
from autotune.ops.conv_transpose import TRANSPOSED


def fold_input_scale(graph: Graph) -> Graph:
    """`conv2d(x * s, w)` --> `conv2d(x, w * s)`;  `conv2d(x + b, w)` --> `conv2d(x, w) + sum of w * b`."""
    return rewrite(graph, _folded, WEIGHTED)


def _folded(sweep: Sweep, node: Node) -> str | None:
    source, weight = sweep.producers.get(node.inputs[0]), sweep.array(node.inputs[1])
    constant = constant_operand(sweep, source) if source is not None and source.op in ("mul", "add") else None
    if source is None or constant is None or weight is None or weight.ndim < 2 or not sweep.sole_use(source.name):
        return None
    rank = len(source.output.shape)
    axis = 1 if node.op != "matmul" else rank - 2 if node.attr("trans_a") else rank - 1
    channels = source.output.shape[axis] if rank > axis >= 0 else 0
    per_channel = along_axis(constant.array, axis, rank)
    if not channels or per_channel is None or weight.dtype != per_channel.dtype:
        return None
    per_channel = np.broadcast_to(per_channel, channels).astype(np.float64)
    if source.op == "mul":
        with np.errstate(all="ignore"):  # infinities and NaNs of the model are the model's
            scaled = (_along_inputs(node, weight, per_channel) * weight).astype(weight.dtype)
        operands = (constant.other, sweep.constant(scaled, node.inputs[1]))
        return sweep.emit(node, node.op, operands, **dict(node.attrs))
    if node.op in TRANSPOSED or (node.op == "matmul" and weight.ndim > 2):
        return None  # not every place of the result sees every tap; a bias per matrix is no epilogue
    if node.op in CONVOLUTIONS and any(node.int_tuple("pad")):
        return None
    if made_by(sweep, constant.other, *WEIGHTED) is not None:
        return None  # its bias, which costs nothing where it is
    product = sweep.emit(node, node.op, (constant.other, node.inputs[1]), **dict(node.attrs))
    with np.errstate(all="ignore"):
        bias = _bias(node, _along_inputs(node, weight, per_channel) * weight)
    return sweep.emit(node, "add", (product, sweep.constant(bias.astype(weight.dtype), node.name)))


def _along_inputs(node: Node, weight: Array, per_channel: Array) -> Array:
    """One number per input channel, shaped to broadcast to the weight."""
    if node.op in TRANSPOSED:
        return per_channel.reshape(-1, *(1,) * (weight.ndim - 1))
    if node.op == "matmul":
        return per_channel if node.attr("trans_b") else per_channel.reshape(-1, 1)
    by_group = per_channel.reshape(-1, weight.shape[1])  # the outputs of a group see the inputs of that group
    rows = np.repeat(by_group, weight.shape[0] // len(by_group), axis=0)
    return rows.reshape(*rows.shape, *(1,) * (weight.ndim - 2))


def _bias(node: Node, shifted: Array) -> Array:
    """What a shift of the inputs adds to each output channel, shaped to broadcast to the result."""
    if node.op == "matmul":
        return np.asarray(shifted.sum(axis=-1 if node.attr("trans_b") else -2))
    total = np.asarray(shifted.sum(axis=tuple(range(1, shifted.ndim))))
    return total.reshape(1, -1, *(1,) * (shifted.ndim - 2))
