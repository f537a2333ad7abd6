"""Taps of a convolution that lie in the padding wherever the window is are dropped: dilation wider than a small image.

requires: fold-pad.
ensures: no convolution with constant weights has a first or last tap along an axis that only ever reads zeros, unless
all do, or windows without it would leave out an end of the image.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.conv import CONVOLUTIONS, Conv


def drop_taps(graph: Graph) -> Graph:
    """`conv2d(x, w, pad=24, dilation=24)` of a 16×16 image --> `conv2d(x, w[:, :, 1:2, 1:2])`."""
    return rewrite(graph, _dropped, CONVOLUTIONS)


def _dropped(sweep: Sweep, node: Node) -> str | None:
    weight = sweep.array(node.inputs[1])
    if weight is None:
        return None
    size = Conv.of(node.op, sweep.values[node.inputs[0]].shape, weight.shape, dict(node.attrs))
    if size.pad_value:
        return None
    kept = [_kept(size, d) for d in range(size.rank)]
    if all(len(taps) == window for taps, window in zip(kept, size.window, strict=True)):
        return None
    window = (slice(None), slice(None), *(slice(taps.start, taps.stop) for taps in kept))
    filters = np.ascontiguousarray(weight[window])
    pads = [_padding(size, d, taps) for d, taps in enumerate(kept)]
    pad = (*(before for before, _ in pads), *(after for _, after in pads))
    dilation = tuple(step if len(taps) > 1 else 1 for step, taps in zip(size.dilation, kept, strict=True))
    operands = (node.inputs[0], sweep.constant(filters, node.inputs[1]), *node.inputs[2:])
    return sweep.emit(node, node.op, operands, **(dict(node.attrs) | {"pad": pad, "dilation": dilation}))


def _kept(size: Conv, d: int) -> range:
    """The taps along a spatial axis from the first to the last that ever reads the image; all where that cannot be."""
    image, stride, step, before = size.image[d], size.stride[d], size.dilation[d], size.pad[d]
    whole = range(size.window[d])
    reading = []
    for tap in whole:
        first = max(-((tap * step - before) // stride), 0)  # window of which it lies in the image
        last = min((image - 1 - tap * step + before) // stride, size.out[d] - 1)
        reading += [tap] if first <= last else []
    if not reading:
        return whole
    kept = range(reading[0], reading[-1] + 1)
    return whole if len(kept) == len(whole) or min(_padding(size, d, kept)) < 0 else kept


def _padding(size: Conv, d: int, taps: range) -> tuple[int, int]:
    """Zeros before and after the image along a spatial axis, so that there are as many windows of these taps."""
    if len(taps) == size.window[d]:
        return size.pad[d], size.pad[d + size.rank]
    before = size.pad[d] - taps.start * size.dilation[d]
    reach = (size.out[d] - 1) * size.stride[d] + (len(taps) - 1) * size.dilation[d] + 1
    return before, reach - size.image[d] - before
