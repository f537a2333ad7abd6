"""Convolutions of bytes say how many bits their sums need, where algorithms ask for less than the shape promises.

requires: integer-regions; behind all passes that change weights.
ensures: a convolution of bytes with constant weights has `sum_bits` where exact Winograd filtering of more outputs at a
time is right for sums that small, and wrong for the largest that its shape allows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.conv import Conv
from autotune.ops.winograd import OPERATORS
from autotune.ops.winograd_exact import BITS_LEFT, LARGEST, TILES, applies_exactly
from autotune.tensor.dtype import DType


def bound_sums(graph: Graph) -> Graph:
    """`conv2d(x: u8, w: i8)` --> `conv2d(x, w, sum_bits=26)`."""
    return rewrite(graph, _bounded, OPERATORS)


def _bounded(sweep: Sweep, node: Node) -> str | None:
    x, weight, attrs = sweep.values[node.inputs[0]], sweep.array(node.inputs[1]), dict(node.attrs)
    data = DType(x.dtype)
    if data not in LARGEST or weight is None or not weight.size or "sum_bits" in attrs:
        return None
    size, kind = Conv.of(node.op, x.shape, weight.shape, attrs), DType.of(weight.dtype)
    fewer = replace(size, sum_bits=min(BITS_LEFT))
    if all(applies_exactly(size, t, data, kind) == applies_exactly(fewer, t, data, kind) for t in TILES.values()):
        return None
    bits = needed(weight, data)
    enough = min((n for n in BITS_LEFT if n >= bits), default=size.sum_bits)
    return sweep.emit(node, node.op, node.inputs, **attrs, sum_bits=enough) if enough < size.sum_bits else None


def needed(weight: np.ndarray[tuple[int, ...], np.dtype[np.integer]], data: DType) -> int:
    """Bits of any sum of such data times the weights (k, c, *window) of one filter, its sign included."""
    taps = weight.reshape(len(weight), -1).astype(np.int64)
    above, below = (int(np.maximum(sign * taps, 0).sum(axis=1).max()) for sign in (1, -1))
    parts = (above + below,) if data.is_signed else (above, below)
    return (LARGEST[data] * max(parts)).bit_length() + 1
