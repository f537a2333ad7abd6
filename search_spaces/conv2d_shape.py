"""Sizes of a convolution and the layouts of its operands, shared by the convolution templates."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.ops.registry import lookup
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.tensor.layout import Layout


@dataclass(frozen=True, slots=True)
class ConvShape:
    """Sizes of the anchor: result (n, k, oh, ow), reduction c x r x s."""

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    oh: int
    ow: int
    stride: tuple[int, int]
    pad: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int

    @staticmethod
    def of(workload: Workload) -> ConvShape:
        anchor = workload.anchor
        assert anchor is not None
        types = workload.types()
        n, c, h, w = types[anchor.inputs[0]].shape
        k, _, r, s = types[anchor.inputs[1]].shape
        _, _, oh, ow = types[len(workload.inputs) + workload.nodes.index(anchor)].shape
        return ConvShape(
            n, c, h, w, k, r, s, oh, ow,
            anchor.attr("stride"), anchor.attr("pad"), anchor.attr("dilation"), anchor.attr("groups"),
        )  # fmt: skip

    def halo(self) -> tuple[tuple[int, int], ...]:
        """Zero border of the input that lets every tap be read without a test."""
        bottom = (self.oh - 1) * self.stride[0] + (self.r - 1) * self.dilation[0] - self.pad[0] - (self.h - 1)
        right = (self.ow - 1) * self.stride[1] + (self.s - 1) * self.dilation[1] - self.pad[1] - (self.w - 1)
        return ((0, 0), (0, 0), (self.pad[0], max(bottom, 0)), (self.pad[1], max(right, 0)))


def blocked_activations(channels: int, lanes: int) -> Layout:
    """NCHW in blocks of one vector of channels; few channels (an image) stay as they are."""
    return Layout.blocked(4, [(1, lanes)]) if channels >= lanes else Layout.row_major(4)


def operand_layouts(workload: Workload, lanes: int, channels: int) -> dict[str, Layout]:
    """Layouts of the epilogue's operands and the output: blocked like the result."""
    out: dict[str, Layout] = {"out0": blocked_activations(channels, lanes)}
    for n, i in enumerate(workload.inputs):
        if len(i.type.shape) == 4 and i.type.shape[1] == channels:
            out[f"in{n}"] = blocked_activations(channels, lanes)
    return out


def plain_conv(workload: Workload) -> bool:
    """An f32 convolution of two operands of the kernel, not empty, with nothing but elementwise operators behind it."""
    anchor = workload.anchor
    if anchor is None or anchor.op != "conv2d" or len(workload.outputs) != 1:
        return False
    if max(anchor.inputs) >= len(workload.inputs):
        return False
    types = workload.types()
    others = all(n is anchor or lookup(n.op).elementwise for n in workload.nodes)
    return others and {types[i].dtype for i in anchor.inputs} == {"f32"} and min(types[-1].shape) > 0


def has_room(s: Schedule, p: ConvShape, x: str, block: int) -> bool:
    """Whether all memory exists that whole blocks of output channels touch.

    Args:
        s: a schedule with all operands' layouts.
        p: sizes.
        x: the activations, read at the channels of their group only.
        block: output channels that are computed together.
    """
    top = -(-p.k // block) * block
    operands = {t.name for t in s.compute.inputs} | set(s.compute.outputs)
    for t in s.state.tensors():
        if t.name not in operands or len(t.shape) < 3:
            continue
        place = len(t.shape) - 3
        if t.name == x:
            needed = (top - 1) // (p.k // p.groups) * (p.c // p.groups) + p.c // p.groups if p.groups > 1 else 0
        else:
            needed = top if t.shape[place] == p.k else 0
        if s.state.layout(t).allocated(t.shape)[place][1] < needed:
            return False
    return True
