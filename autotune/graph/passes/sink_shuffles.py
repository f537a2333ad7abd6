"""Channels shuffled in groups (reshape, transpose, reshape): the shuffle goes behind what works on each channel alone.

requires: merge-affine (a shift behind a convolution is an addition of its own).
ensures: no shuffle is read by a convolution of one group with constant weights, which reads the channels in their old
order, nor by nobody but a depthwise convolution, which may leave fewer elements to move, or an elementwise operator
on numbers per channel.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from autotune.graph.infer import is_pointwise
from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.graph.passes.views import trace
from autotune.ops.conv import CONVOLUTIONS

STEPS = 3  # reshape, transpose, reshape
AXIS = 1


class Shuffle(NamedTuple):
    """Channel c is channel (c mod `groups`) · size + c div `groups` of `source`: `size` channels in each group."""

    source: str
    groups: int
    size: int

    @property
    def inverse(self) -> Array:
        """Where each channel of the source goes."""
        return np.arange(self.groups * self.size).reshape(self.size, self.groups).T.reshape(-1)


def sink_shuffles(graph: Graph) -> Graph:
    """`depthwise(shuffle(x), w)` --> `shuffle(depthwise(x, w'))`, `conv(shuffle(x), w)` --> `conv(x, w')`."""
    return rewrite(graph, _sunk)


def _sunk(sweep: Sweep, node: Node) -> str | None:
    if node.op in CONVOLUTIONS:
        return _convolved(sweep, node)
    if is_pointwise(node.op) and len(node.output.shape) > AXIS:
        return _pointwise(sweep, node)
    return None


def _convolved(sweep: Sweep, node: Node) -> str | None:
    weight = sweep.array(node.inputs[1])
    shuffle = _shuffle(sweep, node.inputs[0]) if weight is not None else None
    if weight is None or shuffle is None:
        return None
    if node.attr("groups") == 1:
        other = sweep.constant(weight[:, shuffle.inverse], node.inputs[1])
        return sweep.emit(node, node.op, (shuffle.source, other), **dict(node.attrs))
    if not node.attr("groups") == len(weight) == shuffle.groups * shuffle.size or not sweep.sole_use(node.inputs[0]):
        return None
    other = sweep.constant(weight[shuffle.inverse], node.inputs[1])
    return _shuffled(sweep, node, sweep.emit(node, node.op, (shuffle.source, other), **dict(node.attrs)), shuffle)


def _pointwise(sweep: Sweep, node: Node) -> str | None:
    """Of an operator with one operand that is shuffled and otherwise constants."""
    computed = [name for name in node.inputs if sweep.array(name) is None]
    if len(computed) != 1 or sweep.values[computed[0]].shape != node.output.shape or not sweep.sole_use(computed[0]):
        return None
    shuffle = _shuffle(sweep, computed[0])
    if shuffle is None:
        return None
    operands = [
        shuffle.source if array is None else sweep.constant(_unshuffled(array, node, shuffle), name)
        for name, array in ((name, sweep.array(name)) for name in node.inputs)
    ]
    return _shuffled(sweep, node, sweep.emit(node, node.op, operands, **dict(node.attrs)), shuffle)


def _unshuffled(array: Array, node: Node, shuffle: Shuffle) -> Array:
    axis = AXIS - (len(node.output.shape) - array.ndim)
    return array.take(shuffle.inverse, axis) if axis >= 0 and array.shape[axis] > 1 else array


def _shuffle(sweep: Sweep, name: str) -> Shuffle | None:
    """How a value is shuffled; None where it is something else."""
    if made_by(sweep, name, "reshape") is None:
        return None
    shape = sweep.values[name].shape
    view = trace(sweep, name, STEPS)
    source = sweep.values[view.base]
    if source.shape != shape or len(shape) <= AXIS or view.offset or view.scale != 1.0:
        return None
    inner = math.prod(shape[AXIS + 1 :])
    parts = view.dims[AXIS]
    rest = [(n, d) for d, n in enumerate(shape) if d != AXIS and n > 1]
    if len(parts) != 2 or any(view.dims[d] != ((n, math.prod(shape[d + 1 :])),) for n, d in rest):
        return None
    (count, step), (groups, far) = parts
    return Shuffle(view.base, groups, count) if step == inner and far == count * inner else None


def _shuffled(sweep: Sweep, node: Node, value: str, shuffle: Shuffle) -> str:
    shape = node.output.shape
    apart = sweep.emit(node, "reshape", (value,), shape=(shape[0], shuffle.groups, shuffle.size, *shape[AXIS + 1 :]))
    perm = (0, 2, 1, *range(3, len(shape) + 1))
    return sweep.emit(node, "reshape", (sweep.emit(node, "transpose", (apart,), perm=perm),), shape=shape)
