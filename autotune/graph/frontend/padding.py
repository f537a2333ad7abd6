"""Pad and CenterCropPad: what is cut off is a slice, what is added a border."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.tensor import DType


@converts("Pad")
def pad(node: OnnxNode) -> str:
    """Negative pads crop. Attributes before opset 11, inputs after."""
    mode = node.attr_string("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ModelError(f"{node.label}: unknown mode '{mode}'")
    pads = node.ints_or_input("paddings" if node.opset < 2 else "pads", 1) or ()
    value: float = node.attr_float("value", 0.0)
    if node.given(2) and mode == "constant":
        array = node.constant(2, "the padding value")
        if array.size != 1:
            raise ModelError(f"{node.label}: the padding value has {array.size} elements")
        value = float(array.reshape(())) if DType.of(array.dtype).is_float else int(array.reshape(()))
    if node.given(3):
        pads = _spread(node, pads, node.constant_ints(3, "axes"))
    return _bordered(node, pads, mode, value)


@converts("CenterCropPad")
def center_crop_pad(node: OnnxNode) -> str:
    """Each side cut or padded with zeros to the size given, evenly; an odd element comes off or on at the end."""
    wanted = node.constant_ints(1, "the shape")
    axes = node.attr_ints("axes") or tuple(range(node.rank()))
    if len(axes) != len(wanted) or min(wanted, default=0) < 0:
        raise ModelError(f"{node.label}: shape {wanted} for the axes {axes}")
    begin, end = [], []
    for axis, size in zip(axes, wanted, strict=True):
        missing = size - node.shape()[node.axis(axis, node.rank())]
        first = abs(missing) // 2
        begin.append(first if missing > 0 else -first)
        end.append(missing - begin[-1])
    return _bordered(node, _spread(node, (*begin, *end), axes), "constant", 0)


def _bordered(node: OnnxNode, pads: Sequence[int], mode: str, value: float) -> str:
    rank, shape = node.rank(), node.shape()
    if len(pads) != 2 * rank:
        raise ModelError(f"{node.label}: {len(pads)} pads for a tensor of rank {rank}")
    ranges = [range(max(0, -pads[d]), shape[d] - max(0, -pads[d + rank])) for d in range(rank)]
    if any(r.start > r.stop for r in ranges):
        raise ModelError(f"{node.label}: pads {tuple(pads)} crop more than there is of {shape}")
    x = node.sliced(node.input(0), ranges)
    if max(pads, default=0) <= 0:
        return x
    around = tuple(max(0, p) for p in pads)
    for d, r in enumerate(ranges):
        if mode == "reflect" and max(around[d], around[d + rank]) >= max(len(r), 1):
            raise ModelError(
                f"{node.label}: a mirrored border of {max(around[d], around[d + rank])} along axis {d}, which has"
                f" {len(r)} elements; less than that many can be mirrored"
            )
    if mode == "constant":
        floating = DType(node.value().dtype).is_float
        return node.emit("pad", x, pads=around, value=float(value) if floating else int(value))
    return node.emit("extend", x, pads=around, mode=mode)


def _spread(node: OnnxNode, pads: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Pads of some axes as pads of all axes."""
    if len(pads) != 2 * len(axes):
        raise ModelError(f"{node.label}: {len(pads)} pads for {len(axes)} axes")
    rank = node.rank()
    places = [node.axis(axis, rank) for axis in axes]
    if len(set(places)) < len(places):
        raise ModelError(f"{node.label}: an axis stands twice in {axes}")
    full = [0] * (2 * rank)
    for position, axis in enumerate(places):
        full[axis], full[axis + rank] = pads[position], pads[position + len(axes)]
    return tuple(full)
