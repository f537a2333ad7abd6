"""What a Winograd convolution should cost: the rule by which an untuned kernel gets its tile size and its blocking.

Cycles of multiply-adds and of transforms, what memory is late with weights, and the bytes that L2 does not hold between
two visits of the blocked loops; what it does hold costs nothing, as multiply-adds go on meanwhile. Fitted to sweeps of
12 to 96 configs over 21 shapes of ResNet, VGG and U-Net with cold weights, one thread and two, on an AVX-512 machine:
what it chooses takes 3 % longer than the best one found there, on average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from autotune.ops import winograd
from autotune.ops.conv import Conv
from autotune.search_spaces.library.register_tile import Steps
from autotune.target import Target

BYTES, LINE = 4, 64
L2_KEPT, L2_LOST = 0.6, 1.25
"""Of L2: a working set that it holds, and one of which it holds nothing from one visit to the next."""
L3_SHARE = 0.35
"""Of L3, what a working set can count on."""
IN_TIME = 1.0
"""Cycles that a line from memory takes from the multiply-adds all the same."""
WRITTEN = 3
"""Reads that a write is worth: the line is fetched first and leaves later."""
STEP = 0.2
"""Cycles that a step of the sum takes beside, per row of tiles: each is read apart from the others."""
TRANSFORM = 2.5
"""Time of a point of a transformed tile and vector of channels, by that of a store: there are loads and additions."""
DENSE = 1.12
"""Time of a tile with an odd number of points by what is estimated: 0 is none of them, so that its transforms have more
terms and spill."""


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


@dataclass(frozen=True, slots=True)
class Cost:
    """Tiles of one convolution, its stride taken apart, on one machine."""

    p: Conv
    tile: winograd.Tile
    target: Target

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        return -(-self.p.oh // self.tile.rows), -(-self.p.ow // self.tile.columns)

    @property
    def points(self) -> int:
        """Elements of a transformed tile."""
        return math.prod(winograd.edges(self.p, self.tile))

    @property
    def weights(self) -> int:
        """Bytes of the transformed weights."""
        return self.points * self.p.c * self.p.k * BYTES

    @property
    def loading(self) -> float:
        """Cycles in which memory gives the weights, whatever the blocking and however many threads."""
        return self.weights / (self._memory * self.target.num_threads)

    @property
    def _memory(self) -> float:
        """Bytes per cycle that memory gives to each thread."""
        core = self.target.core
        return min(core.dram, core.dram_shared / self.target.num_threads)

    def cycles(self, blocking: Blocking) -> float:
        """Estimated cycles of the slowest thread; memory may take longer, see `loading`."""
        vectors, width, height, block, once = blocking
        p, threads, lanes = self.p, self.target.num_threads, self.target.lanes(BYTES)
        rows, columns = self.tiles
        filters, blocks = p.k // lanes // vectors, rows // block
        line = self.points * columns * BYTES  # one row of tiles, one channel
        inputs, outputs = line * p.c * block, line * vectors * lanes * block
        panel, reads = self.points * p.c * vectors * lanes * BYTES, filters + WRITTEN
        # A line of weights is first used by one group of tiles; what memory needs longer than that is waited for.
        late = max(IN_TIME, LINE / self._memory - blocking.pixels) * self.weights / LINE
        again = (blocks - 1) * self.weights
        if once:
            moved = again * self._moved(panel + outputs)
            moved += reads * blocks * inputs * self._moved(blocks * inputs + panel + outputs)
        else:
            moved = again * self._moved(self.weights + inputs + outputs)
            moved += reads * blocks * inputs * self._moved(inputs + outputs)
        moved += (1 + WRITTEN) * filters * blocks * outputs * self._moved(outputs)
        moved += (p.c + 2 * p.k) * p.oh * p.ow * BYTES / self.target.core.l3
        work = p.n * (filters * self._products(vectors, width, height) + self._transforms() + late + moved)
        units = p.n * blocks * (filters if once else 1)
        dense = DENSE if winograd.edges(p, self.tile)[0] % 2 else 1.0
        return dense * work * -(-units // threads) / units

    def _products(self, vectors: int, width: int, height: int) -> float:
        """Cycles of the products for one block of filters."""
        rows, columns = self.tiles
        whole, rest = divmod(columns, width)

        steps = Steps.of(self.target)

        def group(width: int) -> float:
            return steps.cycles(vectors * width * height, 0) + STEP * height if width else 0.0

        groups = whole * group(width) + group(rest)
        return 1.02 * self.points * self.p.c * (rows // height) * groups

    def _transforms(self) -> float:
        rows, columns = self.tiles
        return (
            TRANSFORM
            / self.target.core.stores
            * self.points
            * rows
            * columns
            * (self.p.c + self.p.k)
            / self.target.lanes(BYTES)
        )

    def _moved(self, used: int) -> float:
        """Cycles per byte of a working set that is visited again and again: what has left L2 by the next visit."""
        lost = (used / self.target.l2_bytes - L2_KEPT) / (L2_LOST - L2_KEPT)
        rate = self.target.core.l3 if used <= L3_SHARE * self.target.l3_bytes else self._memory
        return min(1.0, max(0.0, lost)) / rate
