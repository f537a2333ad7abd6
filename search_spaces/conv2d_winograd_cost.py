"""What a Winograd convolution should cost: the rule by which an untuned kernel gets its tile size and its blocking.

Cycles of multiply-adds, plus the bytes that the blocked loops move between caches, each taken from the smallest cache
that holds what is used between two visits. Fitted to sweeps of 20 to 40 configs over ten shapes of ResNet, VGG and
U-Net with cold weights on an AVX-512 machine: what it chooses is at most 9 % slower than the best one found there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from autotune.ops import winograd
from autotune.ops.conv import Conv
from autotune.target import Target

BYTES = 4
L2_SHARE, L3_SHARE = 0.6, 0.25
"""Of a cache, what one thread can count on."""
STREAMED = (32.0, 40.0, 20.0)
VISITED = (32.0, 20.0, 6.0)
"""Bytes per cycle from L2, L3 and memory, which the threads share: weights, read in order ahead of their use; what is
written, then read."""
MEMORY = 9.0
"""Bytes per cycle that memory gives to all threads together, whatever is computed meanwhile."""
WRITTEN = 2
"""Reads that a write is worth: the line is fetched first and leaves later."""
LATENCY = 8
"""Accumulators without which a multiply-add waits for its predecessor."""


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
    """Tiles of `m` x `m` outputs of one convolution, its stride taken apart, on one machine."""

    p: Conv
    m: int
    target: Target

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        return -(-self.p.oh // self.m), -(-self.p.ow // self.m)

    @property
    def points(self) -> int:
        """Elements of a transformed tile."""
        return winograd.edge(self.p, self.m) ** 2

    @property
    def weights(self) -> int:
        """Bytes of the transformed weights."""
        return self.points * self.p.c * self.p.k * BYTES

    @property
    def loading(self) -> float:
        """Cycles in which memory gives the weights, whatever the blocking and however many threads."""
        return self.weights / MEMORY

    def cycles(self, blocking: Blocking) -> float:
        """Estimated cycles of the slowest thread; memory may take longer, see `loading`."""
        vectors, width, height, block, once = blocking
        p, lanes = self.p, self.target.lanes(BYTES)
        rows, columns = self.tiles
        filters, blocks = p.k // lanes // vectors, rows // block
        line = self.points * columns * BYTES  # one row of tiles, one channel
        inputs, outputs = line * p.c * block, line * vectors * lanes * block
        panel, weights = self.points * p.c * vectors * lanes * BYTES, self.weights
        moved = weights / STREAMED[2] * self.target.num_threads
        reads, again = filters + WRITTEN, (blocks - 1) * weights
        if once:
            moved += again * self._byte(panel, outputs, STREAMED)
            moved += reads * blocks * inputs * self._byte(blocks * inputs, panel + outputs)
            moved += (1 + WRITTEN) * filters * blocks * outputs * self._byte(outputs, 0)
        else:
            moved += again * self._byte(weights, inputs + outputs, STREAMED)
            moved += reads * blocks * inputs * self._byte(inputs, outputs)
            moved += (1 + WRITTEN) * filters * blocks * outputs * self._byte(outputs, inputs)
        moved += (p.c + 2 * p.k) * p.oh * p.ow * BYTES * self._byte(p.c * p.h * p.w * BYTES, 0)
        units, threads = p.n * blocks * (filters if once else 1), self.target.num_threads
        work = p.n * (filters * self._products(vectors, width, height) + self._transforms() + moved)
        return work * -(-units // threads) / units

    def _products(self, vectors: int, width: int, height: int) -> float:
        """Cycles of the products for one block of filters."""
        rows, columns = self.tiles
        whole, rest = divmod(columns, width)

        def group(pixels: int) -> float:
            return max(vectors * pixels, LATENCY) + 0.15 * (vectors + pixels) if pixels else 0.0

        groups = whole * group(width * height) + group(rest * height)
        return 1.05 * self.points * self.p.c * (rows // height) * groups

    def _transforms(self) -> float:
        rows, columns = self.tiles
        return 2.5 * self.points * rows * columns * (self.p.c + self.p.k) / self.target.lanes(BYTES)

    def _byte(self, own: int, beside: int, speeds: tuple[float, float, float] = VISITED) -> float:
        """Cycles per byte of `own` bytes that are visited again and again, `beside` others that must stay too."""
        l2, l3, memory = speeds
        if own + beside <= L2_SHARE * self.target.l2_bytes:
            return 1 / l2
        return 1 / l3 if own <= L3_SHARE * self.target.l3_bytes else self.target.num_threads / memory
