"""Layout: the physical form of one tensor in memory.

A logical tensor (N, C, H, W) may live as NCHW16c with a zero halo of one around H and W: dimension 1 is split
into blocks of 16, the block index stays in place and the position inside the block comes last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import WorkloadError

Array = npt.NDArray[Any]

FEW = 8
"""Elements of the last axis that are copied as one, or one after another with all else."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Physical dimensions of a tensor of `rank` logical dimensions, outermost first.

    Attributes:
        order: each physical dimension as (logical dimension, block): block 0 is what is left of that dimension
            (its outer part); block b > 0 is the position inside blocks of b. Blocks may be cut into smaller ones, which
            divide them and stand behind them: the larger is then the number of the smaller in it.
        halo: per logical dimension (before, after): elements kept free around the data, which hold `fill`.
            Blocked dimensions have no halo.
        fill: what lies in the halo by agreement; 0 without one. What fills up blocks is always 0.
    """

    order: tuple[tuple[int, int], ...]
    halo: tuple[tuple[int, int], ...]
    fill: int = 0

    @staticmethod
    def row_major(rank: int) -> Layout:
        return Layout(tuple((d, 0) for d in range(rank)), ((0, 0),) * rank)

    @staticmethod
    def blocked(rank: int, blocks: Sequence[tuple[int, int]], order: Sequence[int] | None = None) -> Layout:
        """Outer parts in `order` (default: logical order), then the blocks in the order given.

        `Layout.blocked(4, [(1, 16)])` is NCHW16c.
        """
        outer = tuple((d, 0) for d in (order if order is not None else range(rank)))
        return Layout(outer + tuple((d, b) for d, b in blocks), ((0, 0),) * rank)

    def with_halo(self, halo: Sequence[tuple[int, int]], fill: int = 0) -> Layout:
        """The same order with another halo, and what lies in it.

        Raises:
            WorkloadError: for a negative halo, or a halo on a blocked dimension.
        """
        pairs = tuple((int(b), int(a)) for b, a in halo)
        blocked = {d for d, block in self.order if block}
        for d, pair in enumerate(pairs):
            if min(pair) < 0 or (d in blocked and pair != (0, 0)):
                raise WorkloadError(f"dimension {d} of a layout cannot have the halo {pair}")
        return Layout(self.order, pairs, fill if any(pair != (0, 0) for pair in pairs) else 0)

    @property
    def rank(self) -> int:
        return len(self.halo)

    def block(self, dimension: int) -> int:
        """Block size of a logical dimension, of several the largest, 1 when it is not blocked."""
        return next((b for d, b in self.order if d == dimension and b), 1)

    def step(self, place: int) -> int:
        """How far apart in its logical dimension neighbours along a physical dimension are."""
        d, block = self.order[place]
        return next((b for e, b in self.order[place + 1 :] if e == d and b), 1) if block else self.block(d)

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Extents in memory: blocks are rounded up, halos added."""
        out = []
        for place, (d, block) in enumerate(self.order):
            step = self.step(place)
            if block:
                out.append(block // step)
            else:
                before, after = self.halo[d]
                out.append((shape[d] + step - 1) // step + before + after)
        return tuple(out)

    def strides(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Elements between neighbours, per physical dimension."""
        physical = self.physical_shape(shape)
        return tuple(math.prod(physical[i + 1 :]) for i in range(len(physical)))

    def elements(self, shape: Sequence[int]) -> int:
        """Elements in memory, padding and halo included."""
        return math.prod(self.physical_shape(shape))

    def allocated(self, shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Per logical dimension, the half-open range of logical indices that exist in memory."""
        out = []
        for d, extent in enumerate(shape):
            inner = self.block(d)
            before, after = self.halo[d]
            out.append((-before, (extent + inner - 1) // inner * inner + after))
        return tuple(out)

    def pack(self, array: Array) -> Array:
        """The physical array (C-contiguous) of a logical one; padding is zero, the halo `fill`."""
        return np.ascontiguousarray(self._physical(array))

    def pack_into(self, physical: Array, array: Array) -> None:
        """Write what `pack` gives, in one copy where nothing is padded; elements are cast to its dtype."""
        _copied(physical, self._physical(array))

    def _physical(self, array: Array) -> Array:
        """The physical array as a view, of a copy only where it has padding or a halo."""
        sides = [(-lo, hi - n) for (lo, hi), n in zip(self.allocated(array.shape), array.shape, strict=True)]
        padding = [side if halo == (0, 0) else (0, 0) for side, halo in zip(sides, self.halo)]
        padded = np.pad(array, padding) if any(p != (0, 0) for p in padding) else array
        if any(halo != (0, 0) for halo in self.halo):
            padded = np.pad(padded, self.halo, constant_values=self.fill)
        return self._split_axes(padded)

    def unpack(self, physical: Array, shape: Sequence[int]) -> Array:
        """The logical array of shape `shape` from a physical one."""
        grid = [hi - lo for lo, hi in self.allocated(shape)]
        _, position = self._split_plan(grid)
        transposed = np.transpose(physical.reshape(self.physical_shape(shape)), np.argsort(position))
        whole = transposed.reshape(grid)
        return np.ascontiguousarray(whole[tuple(slice(b, b + n) for (b, _), n in zip(self.halo, shape, strict=True))])

    def _split_axes(self, padded: Array) -> Array:
        split, position = self._split_plan(padded.shape)
        return padded.reshape(split).transpose(position)

    def _split_plan(self, grid: Sequence[int]) -> tuple[list[int], list[int]]:
        """Shape with every blocked dimension split in its parts, and where each physical dimension finds its axis."""
        split: list[int] = []
        where: dict[int, int] = {}
        for d, extent in enumerate(grid):
            places = [place for place, (e, _) in enumerate(self.order) if e == d]
            for place in sorted(places, key=lambda place: self.order[place][1] > 0):  # what is left of it first
                where[place] = len(split)
                split.append((self.order[place][1] or extent) // self.step(place))
        return split, [where[place] for place in range(len(self.order))]

    def to_json(self) -> Any:
        """A plain JSON value; `from_json` is its inverse."""
        plain = {"order": [list(p) for p in self.order], "halo": [list(p) for p in self.halo]}
        return {**plain, "fill": self.fill} if self.fill else plain

    @staticmethod
    def from_json(data: Any) -> Layout:
        order = tuple((int(d), int(b)) for d, b in data["order"])
        return Layout(order, tuple((int(b), int(a)) for b, a in data["halo"]), int(data.get("fill", 0)))

    def __str__(self) -> str:
        names = "NCHW" if self.rank == 4 else [chr(ord("A") + d) if d < 26 else f"D{d}_" for d in range(self.rank)]
        text = "".join(f"{block}{names[d].lower()}" if block else names[d] for d, block in self.order)
        halo = [f"{names[d]}{b}+{a}" for d, (b, a) in enumerate(self.halo) if b or a]
        return text + (f" halo {' '.join(halo)}" if halo else "") + (f" of {self.fill}" if self.fill else "")


def _copied(to: Array, of: Array) -> None:
    """Equal shapes. NumPy goes along the last axis first, which takes long where it has two or four elements, unless
    both go on with the axis before it where that ends."""
    to, of = to.squeeze(), of.squeeze()
    few = to.shape[-1] if to.ndim > 1 else 0
    if not 1 < few <= FEW or all(a.strides[-2] == few * a.strides[-1] for a in (to, of)):
        to[...] = of
        return
    wide = np.dtype(f"u{few * to.itemsize}") if few * to.itemsize in (2, 4, 8) else None
    if wide is not None and to.dtype == of.dtype and to.strides[-1] == of.strides[-1] == to.itemsize:
        to.view(wide)[..., 0] = of.view(wide)[..., 0]
        return
    for place in range(few):
        to[..., place] = of[..., place]
