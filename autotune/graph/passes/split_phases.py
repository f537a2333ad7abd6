"""Transposed convolutions in groups become convolutions whose filters are the phases of the stride, and a shuffle.

requires: fold-scale (a factor behind a transposed convolution goes into its weights, not behind the shuffle).
ensures: no transposed convolution with constant weights has several groups of several channels, if its window is whole
strides long and it is not dilated.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.conv_transpose import TRANSPOSED, ConvTranspose


def split_phases(graph: Graph) -> Graph:
    """`conv_transpose2d(x, w)` --> `slice(reshape(transpose(reshape(conv2d(x, w')))))`."""
    return rewrite(graph, _split, TRANSPOSED)


def _split(sweep: Sweep, node: Node) -> str | None:
    x, weight = sweep.values[node.inputs[0]], sweep.array(node.inputs[1])
    if weight is None or weight.dtype.kind in "iu":
        return None
    size = ConvTranspose.of(node.op, x.shape, weight.shape, dict(node.attrs))
    depthwise = size.c == size.k == size.groups
    whole = all(side.dilation == 1 and side.window % side.stride == 0 for side in size.sides)
    reached = [(side.image + side.taps - 1) * side.stride for side in size.sides]
    inside = all(0 <= s.before and s.before + s.out <= r for s, r in zip(size.sides, reached, strict=True))
    if size.groups == 1 or depthwise or not whole or not inside or size.n * min(size.out) == 0:
        return None
    rank = len(size.sides)
    filters = sweep.constant(_filters(weight, size), node.inputs[1])
    pad, ones = tuple(side.taps - 1 for side in size.sides) * 2, (1,) * rank
    found = sweep.emit(
        node, f"conv{rank}d", (node.inputs[0], filters), stride=ones, pad=pad, dilation=ones, groups=size.groups
    )
    strides = [side.stride for side in size.sides]
    places = [r // s for r, s in zip(reached, strides, strict=True)]
    found = sweep.emit(node, "reshape", (found,), shape=(size.n, size.k, *strides, *places))
    pairs = [axis for d in range(rank) for axis in (2 + rank + d, 2 + d)]
    found = sweep.emit(node, "transpose", (found,), perm=(0, 1, *pairs))
    found = sweep.emit(node, "reshape", (found,), shape=(size.n, size.k, *reached))
    if size.out == tuple(reached):
        return found
    begin = (0, 0, *(side.before for side in size.sides))
    return sweep.emit(node, "slice", (found,), begin=begin, size=(size.n, size.k, *size.out), step=(1,) * (rank + 2))


def _filters(weight: Array, size: ConvTranspose) -> Array:
    """Filter (k, phase) of the convolution has every stride-th tap from the phase on, the last one first."""
    rank, depth, per_group = len(size.sides), size.c // size.groups, size.k // size.groups
    split = [extent for side in size.sides for extent in (side.taps, side.stride)]
    taps = weight.reshape(size.groups, depth, per_group, *split)
    order = (0, 2, *(4 + 2 * d for d in range(rank)), 1, *(3 + 2 * d for d in range(rank)))
    filters = np.flip(taps.transpose(order), tuple(range(3 + rank, 3 + 2 * rank)))
    shape = (-1, depth, *(side.taps for side in size.sides))
    return np.ascontiguousarray(filters).reshape(shape)
