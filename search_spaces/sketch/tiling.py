"""Tiling: the decisions that make a loop nest of a contraction, and the nest itself.

The structure is that of BLIS (Van Zee and van de Geijn 2015) over any axes: a register tile of accumulators, one vector
along one axis, fed by loads along it and broadcasts along the others; blocks of tiles around it for the caches;
operands that lie badly copied into panels in the order in which the tile reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.schedule import Schedule
from autotune.schedule.editor import Editor
from autotune.schedule.state import REGISTER
from autotune.search_spaces.access import innermost
from autotune.search_spaces.sketch.contraction import Contraction, Factor
from autotune.tensor.layout import Layout

NO, ONCE, BLOCK = "no", "once", "block"
"""Where an operand is copied: nowhere, before all else, or for each block of tiles that reads another part of it."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """
    Attributes:
        vector: number of the spatial axis along which vectors lie.
        lanes: elements of a vector.
        tile: per spatial axis, the register tile: elements, of the vector axis vectors.
        block: per spatial axis, tiles in a block.
        outer, inner: spatial axes in the order of the loops over blocks, and over tiles in a block.
        reduce: reduce axes in the order of their loops.
        unroll: turns of the innermost reduce loop written out.
        packs: per factor, where it is copied. Constants lie as they are wanted.
        shared: how many of the outer loops are shared among threads as one.
        dot: fold neighbours with the instruction.
    """

    vector: int
    lanes: int
    tile: tuple[int, ...]
    block: tuple[int, ...]
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    reduce: tuple[int, ...]
    unroll: int
    packs: tuple[str, ...]
    shared: int
    dot: bool

    def elements(self, axis: int) -> int:
        """Elements of the register tile along a spatial axis."""
        return self.tile[axis] * (self.lanes if axis == self.vector else 1)


class Tiles:
    """Writes the nest of one tiling; `schedule()` is the result.

    Args:
        c: what is computed.
        t: how.
        schedule: `c.schedule`, with the layouts of its operands.
    """

    def __init__(self, c: Contraction, t: Tiling, schedule: Schedule) -> None:
        self.c, self.t = c, t
        self.edit = Editor(schedule)
        self.axes = [a.name for a in schedule.state.stage(c.output).stage.axes]
        self.sums = [a.name for a in c.spatial]

    def schedule(self) -> Schedule:
        outer, inner = self._output()
        copies = self._packed()
        self.edit.compute_at(self.c.total, self.c.output, inner[-1], REGISTER)
        shared = self._share(outer)
        for factor, copy in copies:
            self._copy(factor, copy, shared)
        self._sum()
        return self.edit.schedule

    # -- the output: blocks, tiles, and writing a tile back

    def _output(self) -> tuple[list[str], list[str]]:
        """(loops over blocks, loops over tiles), outermost first."""
        t, out, edit = self.t, self.c.output, self.edit
        blocks, tiles, rows = {}, {}, {}
        self.ragged: set[str] = set()
        for n, axis in enumerate(self.axes):
            extent, size = self.c.spatial[n].extent, t.elements(n)
            over, rows[n] = edit.split(out, axis, size)
            blocks[n], tiles[n] = edit.split(out, over, t.block[n])
            if -(-extent // size) % t.block[n] or (extent % size and not self._whole_vectors(n)):
                self.ragged |= {blocks[n], tiles[n]}
        vectors, lane = edit.split(out, rows[t.vector], t.lanes)
        around = [rows[n] for n in range(len(self.axes)) if n != t.vector]
        outer, inner = [blocks[n] for n in t.outer], [tiles[n] for n in t.inner]
        edit.order(out, [*outer, *inner, *around, vectors, lane])
        edit.unroll(out, [*around, vectors])
        edit.vectorize(out, lane)
        self.outer_axis = dict(zip(outer, t.outer, strict=True))
        return outer, inner

    def _whole_vectors(self, n: int) -> bool:
        """Whether sums beyond the end of the vector axis may be computed: all that they read exists."""
        if n != self.t.vector:
            return False
        moving = [f for f in self.c.factors if self.c.spatial[n].name in f.axes()]
        return all(f.plain and self._in_panels(f) for f in moving)

    def _in_panels(self, factor: Factor) -> bool:
        return factor.plain and (factor.constant or self.t.packs[self.c.factors.index(factor)] != NO)

    def _share(self, outer: list[str]) -> dict[str, str]:
        """Give threads their part; for each outer loop, the loop that it has become part of."""
        out, edit = self.c.output, self.edit
        fused = [outer[0]]
        for loop in outer[1 : self.t.shared]:
            if loop in self.ragged or fused[0] in self.ragged:
                break
            fused.append(loop)
        loop = edit.fuse(out, fused)
        edit.parallel(out, loop)
        edit.partition(out, [x for x in edit.loops(out) if x in self.ragged])
        return {x: loop if x in fused else x for x in outer}

    # -- operands

    def _packed(self) -> list[tuple[Factor, str]]:
        """Panels: constants lie in them, others are copied. (factor, copy) of those."""
        copies = []
        for factor, where in zip(self.c.factors, self.t.packs, strict=True):
            if factor.constant and factor.plain:
                self.edit.layout(factor.tensor, self._panels(factor))
            elif where != NO:
                copies.append((factor, self.edit.cache_read(factor.tensor, self.c.total)))
        return copies

    def _panels(self, factor: Factor) -> Layout:
        """Tile after tile, in each the terms in the order of the sum, and of each term what the tile reads together."""
        c, t = self.c, self.t
        place = {factor.dimension(a.name): n for n, a in enumerate(c.spatial) if factor.dimension(a.name) is not None}
        order = sorted((d for d in place if d is not None), key=lambda d: t.outer.index(place[d]))
        terms = [d for n in t.reduce if (d := factor.dimension(c.reduce[n].name)) is not None]
        along = next((d for d, n in place.items() if n == t.vector), None)
        if along is None:  # of what is broadcast, the rows of a tile side by side
            along = max(order, key=lambda d: t.tile[place[d]], default=None)
        blocks = []
        if along is not None and t.elements(place[along]) > 1:
            blocks.append((along, t.elements(place[along])))
        if t.dot and c.dot is not None:
            d = factor.dimension(c.reduce[t.reduce[-1]].name)
            blocks += [(d, c.dot.extent)] if d is not None else []
        return Layout.blocked(len(factor.shape), blocks, order=(*order, *terms))

    def _copy(self, factor: Factor, copy: str, shared: dict[str, str]) -> None:
        """The loops that copy a factor into panels."""
        c, t, edit = self.c, self.t, self.edit
        form = self._panels(factor)
        if t.packs[c.factors.index(factor)] == BLOCK:
            moving = [x for x, n in self.outer_axis.items() if c.spatial[n].name in factor.axes()]
            if moving:
                place = [x for x in edit.loops(c.output) if x in {shared[m] for m in moving}][-1]
                edit.compute_at(copy, c.output, place)
        edit.layout(copy, form)
        s = edit.stage(copy)
        names = [a.name for a in s.stage.axes]
        d = innermost(form, s.stage.outputs[0].shape)
        if d is None:
            return
        # Lanes are where the panel is contiguous; where the source is contiguous elsewhere, its lines stay near.
        extent = s.loop(names[d]).extent
        order = [names[x] for x, block in form.order if not block and x != d]
        if extent >= 4:
            lanes = min(t.lanes, form.block(d) if form.block(d) > 1 else t.lanes, 1 << (extent.bit_length() - 1))
            over, lane = edit.split(copy, names[d], lanes)
            edit.order(copy, [over, *order, lane])
            edit.vectorize(copy, lane)
            if extent % lanes:
                edit.partition(copy, [over])
        if s.at is None:
            widest = max(edit.stage(copy).loops, key=lambda x: x.extent if not x.mark else 0).name
            edit.order(copy, [widest, *(x for x in edit.loops(copy) if x != widest)])
            edit.parallel(copy, widest)

    # -- the sum of one tile

    def _sum(self) -> None:
        c, t, edit = self.c, self.t, self.edit
        total, rank = c.total, len(c.spatial)
        others = [n for n in range(rank) if n != t.vector]
        edit.layout(total, Layout.blocked(rank, [(t.vector, t.lanes)], order=(*others, t.vector)))
        vectors, lane = edit.split(total, self.sums[t.vector], t.lanes)
        loops = [c.reduce[n].name for n in t.reduce]
        last, neighbours = loops.pop(), []
        if t.dot and c.dot is not None:
            last, neighbour = edit.split(total, last, c.dot.extent)
            neighbours = [neighbour]
        steps, turns = edit.split(total, last, min(t.unroll, edit.extent(total, last)))
        around = [self.sums[n] for n in others]
        few = t.tile[t.vector] <= max(1, _product(t.tile) // t.tile[t.vector])
        tile = [*around, vectors] if few else [vectors, *around]
        edit.order(total, [*loops, steps, turns, *tile, lane, *neighbours])
        edit.unroll(total, [turns, *tile])
        if edit.extent(total, last if last in edit.loops(total) else steps) and self._uneven(steps):
            edit.partition(total, [steps])
        edit.vectorize(total, lane)
        for loop in neighbours:
            edit.tensorize(total, loop, c.dot.name if c.dot else "")
        if self._whole_vectors(t.vector):
            edit.pad(total, self.sums[t.vector])

    def _uneven(self, steps: str) -> bool:
        axis = self.c.reduce[self.t.reduce[-1]]
        each = self.t.unroll * (self.c.dot.extent if self.t.dot and self.c.dot else 1)
        return bool(axis.extent % each)


def _product(numbers: tuple[int, ...]) -> int:
    result = 1
    for n in numbers:
        result *= n
    return result
