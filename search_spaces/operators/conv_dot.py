"""Convolution of 8-bit integers by dot-product instructions: the direct one's tiles, four channels at a time."""

from __future__ import annotations

import math

from autotune.errors import ScheduleError
from autotune.ops.conv import CONVOLUTIONS, Conv
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces.operators.conv2d_direct import Halo, RegisterTiles
from autotune.search_spaces.operators.conv2d_shape import fused_anchor, halo, sizes
from autotune.search_spaces.operators.matmul_dot import DOT, dot_operands
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.registry import template
from autotune.target import Target
from autotune.tensor.layout import Layout


@template("conv1d.dot", op="conv1d", priority=2.0)
@template("conv2d.dot", op="conv2d", priority=2.0)
@template("conv3d.dot", op="conv3d", priority=2.0)
class DotConv(RegisterTiles):
    """u8 activations in blocks of channels, i8 weights, one group."""

    dot = DOT

    def applies(self, workload: Workload, target: Target) -> bool:
        if not fused_anchor(workload, CONVOLUTIONS) or not dot_operands(workload, target):
            return False
        anchor = workload.anchor
        assert anchor is not None
        p = sizes(workload)
        return p.groups == 1 and p.c % DOT.extent == 0 and workload.inputs[anchor.inputs[1]].constant

    def vector_widths(self, p: Conv, lanes: int) -> tuple[int, ...]:
        return (lanes,)

    def channels(self, p: Conv, lanes: int) -> int:
        return math.gcd(p.c, lanes)

    def activations(self, p: Conv, lanes: int) -> Layout:
        return Layout.blocked(p.rank + 2, [(1, lanes if p.c >= lanes else p.c)])

    def operands(self, workload: Workload, inputs: int, block: int) -> tuple[Layout, Halo]:
        p = sizes(workload)
        return Layout.blocked(p.rank + 2, [(0, block), (1, DOT.extent)]), halo(p)

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        anchor = workload.anchor
        assert anchor is not None
        if interface is not None and interface.layouts[anchor.inputs[0]].block(1) % DOT.extent:
            raise ScheduleError(f"{DOT.name} needs {DOT.extent} channels of the activations side by side")
        return super().schedule(workload, config, target, interface)
