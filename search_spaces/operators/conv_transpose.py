"""Transposed convolution on channel-blocked activations: a direct convolution for each phase of the stride.

A tile of positions is computed phase by phase, so that its inputs are read from L1 and the results, whole blocks of
channels that interleave along the rows, are written near each other. The phases share the packed weights' array.
"""

from __future__ import annotations

from autotune.ops.conv import Conv
from autotune.ops.conv_transpose import TRANSPOSED, ConvTranspose
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces.operators.conv2d_direct import Halo, RegisterTiles
from autotune.search_spaces.operators.conv2d_shape import fused_f32
from autotune.search_spaces.space.registry import template
from autotune.target import Target
from autotune.tensor.layout import Layout


def transposed_sizes(workload: Workload) -> ConvTranspose:
    """Sizes of the workload's transposed convolution."""
    anchor = workload.anchor
    assert anchor is not None
    types = workload.types()
    x, weight = (types[i].shape for i in anchor.inputs)
    return ConvTranspose.of(anchor.op, x, weight, dict(anchor.attrs))


@template("conv_transpose1d.phases", op="conv_transpose1d", priority=1.0)
@template("conv_transpose2d.phases", op="conv_transpose2d", priority=1.0)
@template("conv_transpose3d.phases", op="conv_transpose3d", priority=1.0)
class Phases(RegisterTiles):
    """One group, any window, stride and dilation."""

    filters = 1

    def applies(self, workload: Workload, target: Target) -> bool:
        return fused_f32(workload, TRANSPOSED) and transposed_sizes(workload).groups == 1

    def shape(self, workload: Workload) -> Conv:
        """The convolution of one phase."""
        size = transposed_sizes(workload)
        ones, none = (1,) * len(size.sides), (0,) * len(size.sides)
        return Conv(
            size.n, size.c, size.k, tuple(side.image for side in size.sides), tuple(side.taps for side in size.sides),
            tuple(side.positions for side in size.sides), ones, none * 2, ones, 1,
        )  # fmt: skip

    def padded_rows(self, workload: Workload) -> list[int]:
        return []

    def operands(self, workload: Workload, inputs: int, block: int) -> tuple[Layout, Halo]:
        size = transposed_sizes(workload)
        border = [(max(-side.reach[0], 0), max(side.reach[1] - side.image + 1, 0)) for side in size.sides]
        # What a phase reads lies together: taps of one remainder by the stride.
        strides = [(2 + d, side.stride) for d, side in enumerate(size.sides) if side.stride > 1]
        taps = [(2 + d, 0) for d in range(len(border))]
        order = ((1, 0), *strides, (0, 0), *taps, (0, inputs), (1, block))
        return Layout(order, ((0, 0),) * (len(border) + 2)), ((0, 0), (0, 0), *border)

    def positions(
        self, s: Schedule, workload: Workload, out: str, axes: tuple[str, ...]
    ) -> tuple[Schedule, list[str], list[str]]:
        size = transposed_sizes(workload)
        places, phases = [], []
        for axis, side in zip(axes, size.sides, strict=True):
            if side.stride > 1:
                s = s.split(out, axis, side.stride)
                phases.append(f"{axis}.1")
            places.append(f"{axis}.0" if side.stride > 1 else axis)
        return s, places, phases
