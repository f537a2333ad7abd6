"""How a Winograd convolution of one tile size is blocked, untuned: least time by what differs between blockings.

Cycles of multiply-adds, and the bytes that L2 does not hold between two visits of the blocked loops. Which tile size,
if any, is for the loops of the whole kernel to say (`cost_model.expected`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

from autotune.core import LINE
from autotune.cost_model.expected import behind_caches, overlapped
from autotune.lower.coming import READ_AGAIN
from autotune.ops import winograd, winograd_exact
from autotune.ops.conv import Conv
from autotune.schedule.dot_products import ADDED_PAIRS, DOT_PRODUCTS, PAIRS
from autotune.search_spaces.library.afar import comes_from_afar
from autotune.search_spaces.library.register_tile import Steps, tiles
from autotune.target import Target
from autotune.tensor.dtype import DType

AT_ONCE = 2 * LINE
"""Bytes that a step reads of a panel with which the steps under way keep memory busy. Measured, see docs/adr/0014."""
SCATTERED = 8
"""Times as long as bytes in a row take those of lines that lie a plane of points apart, behind L2: nobody fetches them
ahead. Measured, see docs/adr/0014."""


class Blocking(NamedTuple):
    """The knobs that decide: oc_vectors, tw_tile, th_tile, rows, and whether inputs are transformed once."""

    vectors: int
    width: int
    height: int
    block: int
    once: bool

    @property
    def pixels(self) -> int:
        return self.width * self.height


def pairs(target: Target) -> str:
    """The instruction that multiplies pairs of 16-bit integers: one that adds by itself where there is such."""
    adds = DOT_PRODUCTS[ADDED_PAIRS].runs(target.features, target.lanes(winograd_exact.TOTAL.bytes))
    return ADDED_PAIRS if adds else PAIRS


@dataclass(frozen=True)
class Cost:
    """Tiles of one convolution, its stride taken apart, on one machine. Thousands of blockings are asked about: what
    they have in common is found once.

    Attributes:
        exact: of bytes, whose transforms are multiplied in pairs of 16-bit integers.
    """

    p: Conv
    tile: winograd.Tile
    target: Target
    exact: bool = False

    @functools.cached_property
    def factor(self) -> DType:
        """Type of transformed inputs and weights; sums have 32 bits."""
        return winograd_exact.FACTOR if self.exact else DType.f32

    @functools.cached_property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        return -(-self.p.oh // self.tile.rows), -(-self.p.ow // self.tile.columns)

    @functools.cached_property
    def points(self) -> int:
        """Elements of a transformed tile."""
        return math.prod(winograd.edges(self.p, self.tile))

    @functools.cached_property
    def caches(self) -> tuple[tuple[int, float], ...]:
        """What lies behind the first level."""
        return behind_caches(self.target)[1:]

    @functools.cached_property
    def weights(self) -> int:
        """Bytes of the transformed weights."""
        return self.points * self.p.c * self.p.k * self.factor.bytes

    @functools.cached_property
    def late(self) -> float:
        """Cycles in which memory gives the transformed weights, for who neither asks for them nor reads far ahead."""
        return self.weights / self.caches[1][1] if comes_from_afar(self.weights, self.target) else 0.0

    def cycles(self, blocking: Blocking) -> float:
        """Estimated cycles of the slowest thread, without what all have: transforms, weights that come in time."""
        vectors, width, height, block, once = blocking
        p, target, lanes = self.p, self.target, self.target.lanes(DType.f32.bytes)
        rows, columns = self.tiles
        filters, blocks = p.k // lanes // vectors, rows // block
        line = self.points * columns  # one row of tiles, one channel
        inputs = line * p.c * block * self.factor.bytes
        outputs = line * vectors * lanes * block * DType.f32.bytes
        panel = p.c * vectors * lanes * self.factor.bytes  # of a point
        (near_bytes, l3), (far_bytes, memory) = self.caches

        def far(used: int) -> float:
            """Cycles per byte of what is visited again and again: it comes from where there is room."""
            return 0.0 if used <= near_bytes else 1 / (l3 if used <= far_bytes else memory)

        near = panel <= target.l1_bytes
        moved = self.weights * (blocks if near else rows // height * -(-columns // width)) / target.core.l2
        visited = panel * self.points if once else self.weights + inputs
        moved += (blocks - 1) * self.weights * far(visited + outputs)
        held = blocks * inputs + panel * self.points if once else inputs
        moved += filters * blocks * (inputs * far(held + outputs) + outputs * far(outputs))  # by the products
        scattered = blocks * inputs * far(held + outputs) + filters * blocks * outputs * far(outputs)  # by transforms
        # Threads that share tiles read all weights each; those that share weights, what others have transformed.
        moved += (target.num_threads - 1) * (blocks * inputs if once else self.weights) / l3
        products = filters * self._products(vectors, width, height)
        units = p.n * blocks * (filters if once else 1)
        cycles = overlapped(products, moved) + SCATTERED * scattered
        row = vectors * lanes * self.factor.bytes
        if row < AT_ONCE and block // height * -(-columns // width) < READ_AGAIN:  # nor does one turn ask for the next
            cycles += self.late
        return p.n * cycles * -(-units // target.num_threads) / units

    def _products(self, vectors: int, width: int, height: int) -> float:
        """Cycles of the products for one block of filters."""
        rows, columns = self.tiles
        steps, turns = Steps.of(self.target), self.p.c
        if self.exact:
            dot = DOT_PRODUCTS[pairs(self.target)]
            steps, turns = Steps.folding(self.target, dot), self.p.c // dot.extent
        groups = ((many, n * height) for n, many in tiles(columns, width))
        row = sum(many * steps.cycles(vectors * pixels, vectors + pixels) for many, pixels in groups)
        return self.points * turns * (rows // height) * row
