"""Grouped convolution: vectors of output channels inside a group, or in bands of groups."""

from __future__ import annotations

import math

from autotune.ops import conv_bands
from autotune.ops.conv import Conv
from autotune.ops.workload import Workload
from autotune.search_spaces.operators.conv2d_direct import RegisterTiles
from autotune.search_spaces.operators.conv2d_shape import plain_conv, sizes
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.registry import template
from autotune.target import Target
from autotune.tensor.dtype import DType

NARROWEST = 4
"""Vectors of fewer lanes are no gain."""


def _grouped(workload: Workload) -> bool:
    """Several groups of several input channels each; one channel per group is depthwise."""
    if not plain_conv(workload):
        return False
    p = sizes(workload)
    return 1 < p.groups < p.c


def _width(p: Conv, lanes: int) -> int:
    """The widest vectors that fill the output channels of a group."""
    return math.gcd(p.k // p.groups, lanes)


@template("conv1d.grouped", op="conv1d")
@template("conv2d.grouped", op="conv2d")
@template("conv3d.grouped", op="conv3d")
class GroupedConv2d(RegisterTiles):
    """The loops of a dense convolution, group by group: a vector of output channels lies in one group."""

    def applies(self, workload: Workload, target: Target) -> bool:
        if not _grouped(workload):
            return False
        return _width(sizes(workload), target.lanes(DType.f32.bytes)) >= NARROWEST

    def vector_widths(self, p: Conv, lanes: int) -> tuple[int, ...]:
        return (_width(p, lanes),)


@template("conv1d.grouped_bands", op="conv1d")
@template("conv2d.grouped_bands", op="conv2d")
@template("conv3d.grouped_bands", op="conv3d")
class BandsConv2d(RegisterTiles):
    """Where no whole vector lies in one group: output channels read the input channels of all groups they lie in."""

    packed = conv_bands.WEIGHT
    skipped = (1,)

    def applies(self, workload: Workload, target: Target) -> bool:
        if not _grouped(workload):
            return False
        anchor, lanes = workload.anchor, target.lanes(DType.f32.bytes)
        constant = anchor is not None and workload.inputs[anchor.inputs[1]].constant
        return constant and _width(sizes(workload), lanes) < lanes

    def algorithm(self, config: Config) -> str:
        return conv_bands.name(config.get_int("lanes"))

    def definition(self, config: Config) -> str:
        return self.algorithm(config)

    def vector_widths(self, p: Conv, lanes: int) -> tuple[int, ...]:
        return tuple(width for width in conv_bands.WIDTHS if lanes // 2 <= width <= lanes)

    def most_vectors(self, p: Conv, lanes: int) -> int:
        return 1  # the next vector may lie in other groups, and share no broadcast

    def bands(self, p: Conv, lanes: int) -> int:
        return sum(conv_bands.groups_of(p, lanes))
