"""Explicit padding moves into the convolution or pool that reads it.

requires: a verified graph.    ensures: no convolution reads a `pad` of its spatial axes by what surrounds it anyway.
"""

from __future__ import annotations

import math

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import is_not_negative, made_by
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.conv import BORDERS, CONVOLUTIONS
from autotune.ops.workload import AttrValue
from autotune.tensor import DType

FOLDING = frozenset({*CONVOLUTIONS, "avg_pool", "max_pool"})


def fold_pad(graph: Graph) -> Graph:
    """`conv2d(pad(x))` --> `conv2d(x)` with the padding added to its own."""
    return rewrite(graph, _folded, FOLDING)


def _folded(sweep: Sweep, node: Node) -> str | None:
    pad = made_by(sweep, node.inputs[0], "pad")
    attrs = _with_padding(sweep, node, pad) if pad is not None else None
    if pad is None or attrs is None:
        return None
    return sweep.emit(node, node.op, (pad.inputs[0], *node.inputs[1:]), **attrs)


def _with_padding(sweep: Sweep, node: Node, pad: Node) -> dict[str, AttrValue] | None:
    """The attributes of `node` with the padding of `pad` added, None where that would mean something else."""
    pads, own, value = pad.int_tuple("pads"), node.int_tuple("pad"), pad.attr("value")
    rank = len(own) // 2 + 2
    if len(pads) != 2 * rank or any(pads[i] for i in (0, 1, rank, rank + 1)):
        return None
    spatial = (*pads[2:rank], *pads[rank + 2 :])
    total = tuple(a + b for a, b in zip(own, spatial, strict=True))
    attrs = dict(node.attrs) | {"pad": total}
    if node.op in CONVOLUTIONS:
        return _surrounded(attrs, own, value, DType(pad.output.dtype))
    if attrs["ceil_mode"]:
        return None  # where the last window may start depends on what is padding
    if any(side >= extent for side, extent in zip(total, node.int_tuple("kernel") * 2, strict=True)):
        return None  # a window in padding only has no largest element and no mean
    if node.op == "max_pool":
        least = value == -math.inf or (value == 0 and is_not_negative(sweep, pad.inputs[0]))
        return attrs if least else None
    # Explicit zeros count in the average; a pool that leaves out its own padding cannot mix the two.
    if value != 0 or (any(own) and not attrs["count_include_pad"]):
        return None
    return attrs | {"count_include_pad": True}


def _surrounded(
    attrs: dict[str, AttrValue], own: tuple[int, ...], value: AttrValue, dtype: DType
) -> dict[str, AttrValue] | None:
    """The attributes of a convolution whose data is padded with `value`, None where it cannot be or differs."""
    if any(own):
        return attrs if attrs.get("pad_value", 0) == value else None
    attrs.pop("pad_value", None)
    if not value:
        return attrs
    low, high = BORDERS.get(dtype, (0, 0))
    return attrs | {"pad_value": value} if isinstance(value, int) and low <= value <= high else None
