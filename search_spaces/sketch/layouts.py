"""The layouts that a contraction gives its operands where nobody asks for others."""

from __future__ import annotations

from autotune.ops.conv import CONVOLUTIONS
from autotune.ops.workload import Workload
from autotune.search_spaces.operators.conv2d_shape import (
    blocked_activations,
    halo,
    image_layout,
    operand_layouts,
    sizes,
)
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

FOLDED = 4
"""Neighbours that instructions for bytes fold."""


def usual_layouts(workload: Workload, target: Target) -> dict[str, Layout]:
    """Channels of a convolution in blocks of one vector, the image with a border as wide as windows reach beyond it.

    Where each channel is on its own, tiles at the ends of the image are code of their own anyway, and need no border
    that somebody has to write.

    Where tiles multiply them, blocks are as long as a row of a tile, for producers and consumers alike. Bytes of which
    fours are folded lie in fours at least, filled up with zeros, or, of few channels, in rows as they are; where each
    channel is on its own, in single vectors. Everything else is row-major.
    """
    anchor = workload.anchor
    if anchor is None:
        return {}
    sources = [workload.source(value) for value in anchor.inputs]
    if max(sources, default=0) >= len(workload.inputs):
        return {}
    first = sources[0]
    operand, lanes = workload.inputs[first], target.lanes(DType.f32.bytes)
    small = DType(operand.type.dtype).bytes == 1
    if anchor.op == "matmul" and small and not operand.constant and not dict(anchor.attrs)["trans_a"]:
        rank = len(operand.type.shape)
        odd = rank > 1 and operand.type.shape[-1] % FOLDED
        return {f"in{first}": Layout.blocked(rank, [(rank - 1, FOLDED)])} if odd else {}
    if anchor.op not in CONVOLUTIONS:
        return {}
    p = sizes(workload)
    types = {f"in{n}": i.type for n, i in enumerate(workload.inputs)} | {"out0": workload.types()[workload.outputs[0]]}
    layouts = {name: image_layout(types[name], target) for name in operand_layouts(workload, lanes, p.k)}
    form = image_layout(operand.type, target)
    if small and (p.c < lanes or p.c % FOLDED) and p.groups == 1:
        form = Layout.blocked(p.rank + 2, [(1, FOLDED)])
    border = halo(p)
    rows = small and p.groups == 1 and _folds_rows(p.c, p.window[-1], p.dilation[-1])
    if rows or (small and p.groups == p.c):  # taps of a row are folded, of which the last may lie beyond the window
        form = Layout.row_major(p.rank + 2) if rows else blocked_activations(p.c, lanes, p.rank + 2)
        before, after = border[-1]
        border = (*border[:-1], (before, after + -p.window[-1] % FOLDED * p.dilation[-1]))
    bare = not small and p.groups == p.c and form.block(1) > 1
    layouts[f"in{first}"] = form if bare else form.with_halo(border, p.pad_value)
    return layouts


def _folds_rows(channels: int, taps: int, dilation: int) -> bool:
    """Whether an image of few channels stays as it is, in rows, of which neighbours are folded: no more zeros are
    multiplied then than where channels are filled up, and who writes the image writes whole rows."""
    return channels < FOLDED and dilation == 1 and -(-taps // FOLDED) * channels <= -(-channels // FOLDED) * taps
